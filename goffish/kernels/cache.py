"""Where numba keeps compiled kernels when neither the package nor the user's home can be written."""

from __future__ import annotations

import os


def choose_kernel_cache() -> None:
    """Set ``NUMBA_CACHE_DIR`` where numba would find no default place and refuse to work.

    That is so in a container or a service that runs as a user without a home on a read-only installation. The folder
    belongs to the user alone, for numba runs what it finds there.
    """
    package = os.path.dirname(__file__)  # noqa: PTH120 (nothing is imported on the common path)
    if "NUMBA_CACHE_DIR" in os.environ or os.access(package, os.W_OK):
        return
    import tempfile
    from pathlib import Path

    usual = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 (never raises)
    # A folder that may not even be looked into counts as missing here: then its parent decides.
    existing = next(place for place in (usual, *usual.absolute().parents) if os.path.exists(place))  # noqa: PTH110
    if os.access(existing, os.W_OK | os.X_OK):
        return
    own = Path(tempfile.gettempdir()) / f"goffish-kernels-{os.getuid()}"
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        status = own.lstat()
        safe = own.is_dir() and not own.is_symlink() and status.st_uid == os.getuid() and not status.st_mode & 0o077
        os.environ["NUMBA_CACHE_DIR"] = str(own) if safe else tempfile.mkdtemp(prefix="goffish-kernels-")
    except OSError:
        return

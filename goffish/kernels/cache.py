"""Where numba keeps compiled kernels when neither the package nor the user's home can be written."""

from __future__ import annotations

import os
import sys


def choose_kernel_cache() -> None:
    """Set ``NUMBA_CACHE_DIR`` where numba would find no place that can be written, and refuse to work.

    That is so in a container or a service that runs as a user without a home on a read-only installation, also if the
    folder that was set cannot be written. The folder belongs to the user alone, for numba runs what it finds there.
    """
    package = os.path.dirname(__file__)  # noqa: PTH120 (nothing is imported on the common path)
    given = os.environ.get("NUMBA_CACHE_DIR")
    if (given and can_be_written(given)) or os.access(package, os.W_OK):
        return
    if can_be_written(folder_of_the_user()):
        return
    import tempfile
    from pathlib import Path

    try:
        own = Path(tempfile.gettempdir()) / f"goffish-kernels-{os.getuid()}"
        own.mkdir(mode=0o700, exist_ok=True)
        status = own.lstat()
        safe = own.is_dir() and not own.is_symlink() and status.st_uid == os.getuid() and not status.st_mode & 0o077
        found = str(own) if safe and can_be_written(str(own)) else tempfile.mkdtemp(prefix="goffish-kernels-")
    except OSError:
        return  # kernels are compiled by every process then
    os.environ["NUMBA_CACHE_DIR"] = found
    if "numba" in sys.modules:  # it has read the variable
        sys.modules["numba"].config.CACHE_DIR = found


def folder_of_the_user() -> str:
    """Return where numba keeps kernels of a package that is read-only."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 (never raises)
    return f"{cache}/numba"


def can_be_written(folder: str) -> bool:
    """Try it as numba does: permissions are not all that can stand in the way, such as a disk that is full."""
    file = f"{folder}/.goffish-{os.getpid()}"
    try:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        with open(file, "wb") as probe:  # noqa: PTH123
            probe.write(b"0")
        os.remove(file)  # noqa: PTH107
    except OSError:
        return False
    return True

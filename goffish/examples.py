"""The example data and programs that are bundled with the package."""

from __future__ import annotations

import shutil
from pathlib import Path

from goffish.partial import local_path, partial_file

_PARTS = ("data", "examples")


def bundled_examples() -> Path:
    """Return the folder that holds ``data`` and ``examples``."""
    package = Path(__file__).parent
    installed = package / "bundled"
    return installed if installed.is_dir() else package.parent  # an editable install uses those of the checkout


def write_examples(folder: str | Path) -> tuple[int, int]:
    """Copy the bundled data and example programs into a folder.

    Existing files are never overwritten.

    Parameters
    ----------
    folder : str or Path
        Receives the folders ``data`` and ``examples``; created if it does not exist.

    Returns
    -------
    written, kept : int
        Numbers of files that were copied, and that existed already.

    Raises
    ------
    InputError
        If `folder` is a URI.
    OSError
        If a file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written, kept = write_examples(folder)
    ...     (Path(folder) / "data" / "email-enron.txt.gz").is_file(), kept
    (True, 0)
    """
    place, written, kept = local_path(folder), 0, 0
    for part in _PARTS:
        for source in sorted((bundled_examples() / part).rglob("*")):
            target = place / source.relative_to(bundled_examples())
            if source.is_dir() or "__pycache__" in source.parts:
                continue
            if target.exists():
                kept += 1
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with partial_file(target) as partial:
                shutil.copyfile(source, partial)
            written += 1
    return written, kept

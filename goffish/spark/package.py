"""The package as an archive for ``spark-submit --py-files``."""

from __future__ import annotations

import zipfile
from pathlib import Path

from goffish.partial import check_place, output_file

#: Every file bears it, so that the same code gives the same archive.
_DATE = (1980, 1, 1, 0, 0, 0)


def write_package(path: str | Path) -> int:
    """Write the code of GoFFish as a ZIP archive; gives the number of files in it.

    Raises
    ------
    InputError
        `path` is not a ``.zip``, or cannot be written.
    """
    target = check_place(path, (".zip",))
    source = Path(__file__).parents[1]
    files = sorted(file for file in source.rglob("*") if file.suffix in (".py", ".typed"))
    with output_file(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            name = zipfile.ZipInfo(f"goffish/{file.relative_to(source).as_posix()}", _DATE)
            name.external_attr = 0o644 << 16
            archive.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return len(files)

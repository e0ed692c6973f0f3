"""Python files of users, loaded as modules."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from goffish.errors import GoffishError, InputError


def load_module(file: Path) -> Any:
    """Run a Python file as a module, beside which other modules are found.

    Parameters
    ----------
    file : Path

    Returns
    -------
    module

    Raises
    ------
    InputError
        The file cannot be run; names the line.
    """
    spec = importlib.util.spec_from_file_location(file.stem, file.absolute())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.absolute().parent))
    sys.modules.setdefault(file.stem, module)
    try:
        spec.loader.exec_module(module)
    except GoffishError as error:
        raise type(error)(f"{file}:{_line(file, error)}: {error}") if type(error) is InputError else error from None
    except SyntaxError as error:
        raise InputError(f"{file}:{error.lineno}: {error.msg}") from None
    except SystemExit as error:
        raise InputError(f"{file}:{_line(file, error)}: ends the program; the file must not call exit()") from None
    except Exception as error:
        raise InputError(f"{file}:{_line(file, error)}: {type(error).__name__}: {error}") from None
    return module


def _line(file: Path, error: BaseException) -> int | None:
    """Return the line of a file in which an error was raised."""
    name = str(file.absolute())
    lines = [at for frame, at in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == name]
    return lines[-1] if lines else None

"""Compiled kernels on disk: those that processes keep for the next one, and those that came with the package."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from types import CodeType
from typing import Any

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_features
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys

from goffish.kernels.inner import rebuilt

_PACKAGE = Path(__file__).resolve().parents[1]
#: The kernels of a wheel that was built for one version of Python, in the folders of their modules.
_SHIPPED = _PACKAGE / "compiled"
#: The processor that they are for: nearly every one of this architecture that was made since 2013.
SHIPPED_CPU = "x86-64-v3"
_ITS_FEATURES = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
#: Changes with what is kept of a kernel: an upgrade does not read what an earlier version has kept.
_FORMAT = 2
_read_index = IndexDataCacheFile._load_index


class KeptKernels(FunctionCache):  # type: ignore[misc]
    """The compiled forms of one kernel.

    They are found again by the texts of all modules that they were compiled from, not by the times of the files, which
    differ from one installation to the next.

    Parameters
    ----------
    function : callable
    inner : bool
        Whether only kernels call it.

    Raises
    ------
    RuntimeError
        No folder can be written.
    """

    def __init__(self, function: Callable[..., Any], *, inner: bool) -> None:
        super().__init__(function)
        if inner:
            self._impl.rebuild = rebuilt
        self._shipped: IndexDataCacheFile | None = None
        self._identified = False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel, if there is one for these types.

        numba would first load its implementations of Python and NumPy, which takes half a second, and only compiling
        needs.
        """
        if not self._identified:
            self._identify()
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
            return self._load_shipped(sig, target_context) if found is None else found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel, unless the disk is full: it can be used all the same."""
        with suppress(OSError):
            super().save_overload(sig, data)

    def _load_shipped(self, sig: Any, target_context: Any) -> Any:
        if self._shipped is None:
            return None
        key, (triple, *_), function = self._index_key(sig, target_context.codegen())
        data = self._shipped.load((key, (triple, SHIPPED_CPU, ""), function))
        return None if data is None else self._impl.rebuild(target_context, data)

    def _identify(self) -> None:
        """Make kernels be found by what they were compiled from.

        numba compares the time of a kernel's own module. After an upgrade, callees in other modules would run as they
        were before.
        """
        source = Path(self._py_func.__code__.co_filename)
        files = [self._cache_file]
        if _runs_shipped() and _PACKAGE in source.parents:
            folder = _SHIPPED / source.parent.relative_to(_PACKAGE)
            self._shipped = IndexDataCacheFile(str(folder), self._impl.filename_base, None)
            files.append(self._shipped)
        used: dict[str, str] = {}
        _add_used(self._py_func, used)
        digest = hashlib.sha256(repr(sorted(used.items())).encode()).hexdigest()
        for file in files:
            file._version, file._source_stamp = f"{numba.__version__} {_FORMAT} {digest}", _text_digest(source)
        self._identified = True


@cache
def _runs_shipped() -> bool:
    """Whether the wheel has compiled kernels, and this processor can run them."""
    if not _SHIPPED.is_dir() or platform.machine() != "x86_64":
        return False
    features = get_host_cpu_features()
    return all(features.get(name, False) for name in _ITS_FEATURES)


def _add_used(function: Any, used: dict[str, str]) -> None:
    """Add the other kernels and the constants that end up in the machine code of a kernel."""
    for name in _names(function.__code__):
        value, key = function.__globals__.get(name), f"{function.__module__}.{name}"
        if key in used:
            continue
        if isinstance(value, Dispatcher):
            used[key] = _text_digest(Path(value.py_func.__code__.co_filename))
            _add_used(value.py_func, used)
        elif isinstance(value, np.ndarray):
            used[key] = f"{value.dtype} {value.tobytes().hex()}"
        elif isinstance(value, bool | int | float | str | tuple | np.generic):
            used[key] = repr(value)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _text_digest(source: Path) -> str:
    """Digest of a module; empty for code that is in no file."""
    try:
        return hashlib.sha256(source.read_bytes()).hexdigest()
    except OSError:
        return ""


def _index_of_this_version(file: Any) -> Any:
    """What numba keeps of a kernel on disk; nothing where an earlier version wrote it with types that are gone.

    Nor where it is damaged, or another user's.
    """
    try:
        return _read_index(file)
    except (AttributeError, ImportError, OSError, EOFError, ValueError, UnpicklingError):
        return {}


# numba looks at the version of a file only after it has loaded all types in the index: an upgrade of GoFFish that
# renames the type of an argument would make the kernel fail.
IndexDataCacheFile._load_index = _index_of_this_version

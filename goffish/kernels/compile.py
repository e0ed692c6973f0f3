"""How kernels are compiled: to machine code that holds no interpreter lock, kept on disk for the next process."""

from __future__ import annotations

import fcntl
import hashlib
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from pickle import UnpicklingError
from types import CodeType
from typing import Any, BinaryIO

import numba
import numpy as np
from numba import njit
from numba.core.caching import IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys
from numba.core.types import unliteral

from goffish.errors import GoffishWarning

_read_index = IndexDataCacheFile._load_index
#: Files that this process has locked: kernels call kernels of the same file.
_locked: set[str] = set()
#: Seconds for which a process waits for another one that compiles; no kernel takes as long.
_LONGEST_S = 60.0


def kernel(
    function: Callable[..., Any] | None = None, *, inline: str = "never", allocates: bool = True, inner: bool = False
) -> Any:
    """Compile a function over flat arrays on its first call, for each combination of types.

    Parameters
    ----------
    function : callable
    inline : {"never", "always"}
        "always": its statements become part of every kernel that calls it.
    allocates : bool
        False: it makes no arrays. References to arrays are then not counted, which takes most of the time of small
        kernels over many arrays.
    inner : bool
        True: only kernels call it, as they alone call those whose names begin with an underscore. Without the code
        that makes it callable from Python, it compiles in three quarters of the time.
    """
    if function is None:
        return partial(kernel, inline=inline, allocates=allocates, inner=inner)
    compile_it = partial(
        njit, nogil=True, inline=inline, _nrt=allocates, no_cfunc_wrapper=True,
        no_cpython_wrapper=inner or function.__name__.startswith("_"),
    )  # fmt: skip
    try:
        compiled = compile_it(cache=True)(function)
        compiled._cache.save_overload = partial(_save, compiled._cache.save_overload)
        compiled._cache.load_overload = partial(_load, compiled._cache)
    except RuntimeError:  # no folder can be written
        compiled = compile_it()(function)
        _warn()
    compiled.compile = partial(_compile_once, compiled, compiled.compile)
    return compiled


@cache
def _warn() -> None:
    text = "compiled kernels are not kept, as no folder can be written; set NUMBA_CACHE_DIR to one that can"
    warnings.warn(text, GoffishWarning, stacklevel=3)


def _save(save: Callable[..., None], *given: Any) -> None:
    """Keep a kernel, unless the disk is full: it can be used all the same."""
    with suppress(OSError):
        save(*given)


def _compile_once(compiled: Dispatcher, compile_types: Callable[[Any], Any], types: Any) -> Any:
    """Compile, or wait until another process of this machine has, and load what it kept.

    Processes take turns at the kernels of a module. A kernel calls those of its module and of modules that its
    module imports, never the other way round: no two processes wait for each other.
    """
    source, cached = compiled.py_func.__code__.co_filename, getattr(compiled._cache, "_cache_file", None)
    if not compiled.signatures and cached is not None:
        cached._version = f"{numba.__version__} {_digest(compiled.py_func)}"
    with ExitStack() as held:
        # As the compiler does, but before the file: threads that compile wait for each other without it.
        held.enter_context(global_compiler_lock)
        # Kernels that are in no file, or in one that cannot be locked, are compiled by every process.
        with suppress(OSError):
            if source not in _locked and _lock(file := held.enter_context(Path(source).open("rb"))):
                _locked.add(source)
                held.callback(_locked.remove, source)
                # A process that was forked in the meantime has the file open as well.
                held.callback(fcntl.flock, file, fcntl.LOCK_UN)
        # A constant is passed like any other number: kernels would be compiled again for each of them.
        return compile_types(tuple(map(unliteral, types)))


def _load(cache: Any, types: Any, target: Any) -> Any:
    """Load a kernel that is kept on disk.

    numba would first load its implementations of Python and NumPy, which takes half a second, and only compiling needs.
    """
    rtsys.initialize(target)
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(types, target)


def _digest(function: Any) -> str:
    """Digest of the other kernels and the constants that end up in the machine code of a kernel.

    numba compares the source of a kernel's own module with that of a compiled one. After an upgrade, callees in other
    modules would run as they were before.
    """
    used: dict[str, str] = {}
    _add_used(function, used)
    return hashlib.sha256(repr(sorted(used.items())).encode()).hexdigest()


def _add_used(function: Any, used: dict[str, str]) -> None:
    for name in _names(function.__code__):
        value, key = function.__globals__.get(name), f"{function.__module__}.{name}"
        if key in used:
            continue
        if isinstance(value, Dispatcher):
            cached = getattr(value._cache, "_cache_file", None)
            used[key] = repr(getattr(cached, "_source_stamp", None))
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


def _lock(file: BinaryIO) -> bool:
    """Lock a file; without success if another process has held it for longer than a compilation takes."""
    last = time.monotonic() + _LONGEST_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > last:
                return False
            time.sleep(0.02)


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

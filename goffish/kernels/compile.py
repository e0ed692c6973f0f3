"""How kernels are compiled: to machine code that holds no interpreter lock, kept on disk for the next process."""

from __future__ import annotations

import fcntl
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO

from numba import njit
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.types import unliteral

from goffish.errors import GoffishWarning
from goffish.kernels.inner import InnerCompiler, set_environments
from goffish.kernels.kept import KeptKernels

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
    inline : {"never", "always", "compiled"}
        "always": its statements become part of every kernel that calls it, before types are known. "compiled": its
        compiled code does, for a kernel over many arrays, of which a call copies the descriptors: 56 bytes for each.
    allocates : bool
        False: it makes no arrays. References to arrays are then not counted, which takes most of the time of small
        kernels over many arrays.
    inner : bool
        True: only kernels call it, as they alone call those whose names begin with an underscore. No machine code is
        made of it by itself.
    """
    if function is None:
        return partial(kernel, inline=inline, allocates=allocates, inner=inner)
    forced = inline == "compiled"
    inner = inner or function.__name__.startswith("_")
    compiled = njit(
        nogil=True, inline="never" if forced else inline, forceinline=forced, _nrt=allocates, no_cfunc_wrapper=True,
        no_cpython_wrapper=inner, pipeline_class=InnerCompiler if inner else Compiler,
    )(function)  # fmt: skip
    try:
        compiled._cache = KeptKernels(function, inner=inner)
    except RuntimeError:  # no folder can be written
        _warn()
    compiled.compile = partial(_compile_once, compiled, compiled.compile)
    return compiled


@cache
def _warn() -> None:
    text = "compiled kernels are not kept, as no folder can be written; set NUMBA_CACHE_DIR to one that can"
    warnings.warn(text, GoffishWarning, stacklevel=3)


def _compile_once(compiled: Dispatcher, compile_types: Callable[[Any], Any], types: Any) -> Any:
    """Compile, or wait until another process of this machine has, and load what it kept.

    Processes take turns at the kernels of a module. A kernel calls those of its module and of modules that its
    module imports, never the other way round: no two processes wait for each other.
    """
    source = compiled.py_func.__code__.co_filename
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
        types = tuple(map(unliteral, types))
        entry = compile_types(types)
        set_environments(compiled.overloads[types])
        return entry


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

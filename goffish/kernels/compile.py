"""How kernels are compiled: to machine code that holds no interpreter lock, kept on disk for the next process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.caching import IndexDataCacheFile

_read_index = IndexDataCacheFile._load_index


def kernel(function: Callable[..., Any] | None = None, *, inline: str = "never") -> Any:
    """Compile a function over flat arrays on its first call, for each combination of types.

    Parameters
    ----------
    function : callable
    inline : {"never", "always"}
        "always": its statements become part of every kernel that calls it.
    """
    compiled = njit(cache=True, nogil=True, inline=inline)
    return compiled if function is None else compiled(function)


def _index_of_this_version(cache: Any) -> Any:
    """What numba keeps of a kernel on disk; nothing where an earlier version wrote it with types that are gone."""
    try:
        return _read_index(cache)
    except (AttributeError, ImportError):
        return {}


# numba looks at the version of a file only after it has loaded all types in the index: an upgrade of GoFFish that
# renames the type of an argument would make the kernel fail.
IndexDataCacheFile._load_index = _index_of_this_version

"""What reflection finds by name: also single methods, which protobuf's pool does not."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool


class Symbols:
    """A pool of descriptors for gRPC's reflection.

    Parameters
    ----------
    pool : DescriptorPool, optional
        Default: that of all generated code.
    """

    def __init__(self, pool: Any = None) -> None:
        self._pool = descriptor_pool.Default() if pool is None else pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:
        """The file that defines a symbol.

        Raises
        ------
        KeyError
            There is none.
        """
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            found = self._pool.FindServiceByName(service)
            return found.methods_by_name[method].containing_service.file

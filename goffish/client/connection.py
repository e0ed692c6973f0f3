"""A channel to a server, its stubs, and what both clients know of calls."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from goffish.client.channels import AWAY, Access, ServiceError
from goffish.v1 import catalog_pb2_grpc, jobs_pb2_grpc, planning_pb2_grpc

#: Seconds that a call may take, and one that plans: the server ends those after 300 s (`goffish serve --most-plan`).
CALL_S, PLAN_S = 30.0, 330.0


class Connection:
    """A channel and its stubs.

    Parameters
    ----------
    address, token, authority, tls, certificate, key
        See `goffish.client.channels.Access`.
    timeout_s, patience_s : float
        See `Client`.
    """

    #: Where channels are made.
    _room: Any

    def __init__(
        self, address: str, token: str | None = None, *, authority: str | Path | None = None, tls: bool = False,
        certificate: str | Path | None = None, key: str | Path | None = None, timeout_s: float | None = None,
        patience_s: float = 600.0,
    ) -> None:  # fmt: skip
        given = Access(address, token, authority, tls, certificate, key)
        self.metadata, self._timeout_s, self._patience_s = given.metadata, timeout_s, patience_s
        #: Whether the server was ever there.
        self._answered = False
        credentials = given.credentials
        if credentials is None:
            self._channel = self._room.insecure_channel(given.target, options=given.options)
        else:
            self._channel = self._room.secure_channel(given.target, credentials, options=given.options)
        self.jobs: Any = jobs_pb2_grpc.JobServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.planning: Any = planning_pb2_grpc.PlanningServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.catalog: Any = catalog_pb2_grpc.CatalogServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def _limit(self, usual_s: float | None) -> float | None:
        """Seconds of a call, of which `usual_s` is the default; None has no limit."""
        return self._timeout_s if self._timeout_s is not None and usual_s is not None else usual_s

    def _until(self, error: ServiceError, end: float | None) -> float:
        """When patience ends with a server that is away; it begins with the first error.

        Raises
        ------
        ServiceError
            The same: it has ended, the server was never there, or it is there and refuses.
        """
        now = time.monotonic()
        end = now + self._patience_s if end is None else end
        if error.code not in AWAY or not self._answered or now >= end:
            raise error
        return end

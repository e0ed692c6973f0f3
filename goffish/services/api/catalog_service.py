"""gRPC service of catalogues: `goffish.v1.CatalogService`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from goffish.errors import InputError
from goffish.scheduling import messages
from goffish.scheduling.dataflow.model import known_dataflows, read_dataflow
from goffish.services.api import wire
from goffish.services.api.calls import elsewhere
from goffish.services.api.spot_advice import Markets
from goffish.services.api.wire import cloud_by_name, cloud_names
from goffish.v1 import catalog_pb2, catalog_pb2_grpc

#: Maximum number of prices per response.
_MOST_PRICES = 100_000
Answer = TypeVar("Answer")


class _Once(Generic[Answer]):
    """Value computed once, on the first call; concurrent callers wait for it.

    Parameters
    ----------
    make : callable
        Computes the value.
    """

    def __init__(self, make: Callable[[], Answer]) -> None:
        self._make: Callable[[], Answer] | None = make
        self._lock = threading.Lock()

    def __call__(self) -> Answer:
        """Return the value."""
        with self._lock:
            if self._make is not None:
                self._made, self._make = self._make(), None
        return self._made


class CatalogService(catalog_pb2_grpc.CatalogServiceServicer):  # type: ignore[misc, unused-ignore]
    """List machine types, prices, markets, dataflows, policies and algorithms.

    Parameters
    ----------
    markets : Markets
    """

    def __init__(self, markets: Markets) -> None:
        self._markets = markets
        # Constant responses are computed once.
        self._catalogues, self._dataflows = _Once(_catalogues), _Once(_dataflows)
        self._policies, self._algorithms = _Once(_policies), _Once(_algorithms)

    async def ListCatalogues(self, request: Any, context: Any) -> catalog_pb2.ListCataloguesResponse:
        """Return the catalogues of machine types."""
        return await elsewhere(self._catalogues)

    async def GetPrices(self, request: catalog_pb2.GetPricesRequest, context: Any) -> catalog_pb2.GetPricesResponse:
        """Return spot prices over time."""
        return await elsewhere(_prices, request)

    async def ListMarkets(self, request: Any, context: Any) -> catalog_pb2.ListMarketsResponse:
        """Return the spot markets."""
        return catalog_pb2.ListMarketsResponse(markets=await elsewhere(self._markets.messages))

    async def ListDataflows(self, request: Any, context: Any) -> catalog_pb2.ListDataflowsResponse:
        """Return the bundled dataflows."""
        return await elsewhere(self._dataflows)

    async def ListPolicies(self, request: Any, context: Any) -> catalog_pb2.ListPoliciesResponse:
        """Return the policies and their options."""
        return await elsewhere(self._policies)

    async def ListAlgorithms(self, request: Any, context: Any) -> catalog_pb2.ListAlgorithmsResponse:
        """Return the algorithms and their options."""
        return await elsewhere(self._algorithms)


def _catalogues() -> catalog_pb2.ListCataloguesResponse:
    answer = catalog_pb2.ListCataloguesResponse()
    for name in cloud_names():
        answer.catalogues.add(name=name, catalogue=messages.catalogue_message(cloud_by_name(name)))
    return answer


def _dataflows() -> catalog_pb2.ListDataflowsResponse:
    answer = catalog_pb2.ListDataflowsResponse()
    for name in known_dataflows():
        answer.dataflows.append(messages.dataflow_message(read_dataflow(name)))
        answer.names.append(name)
    return answer


def _prices(request: catalog_pb2.GetPricesRequest) -> catalog_pb2.GetPricesResponse:
    from goffish.cloud.prices import bundled_trace, bundled_traces

    if request.trace not in bundled_traces():
        raise InputError(f"trace: unknown {request.trace[:80]!r}; choose one of {', '.join(bundled_traces())}")
    trace = bundled_trace(request.trace)
    since = request.since.ToMicroseconds() / 1e6 if request.HasField("since") else -float("inf")
    until = request.until.ToMicroseconds() / 1e6 if request.HasField("until") else float("inf")
    if since > until:
        raise InputError("since: must not be after until")
    answer = catalog_pb2.GetPricesResponse()
    times = trace.times
    # Include the price in effect at the start.
    first, last = max(0, int(np.searchsorted(times, since, "right")) - 1), int(np.searchsorted(times, until, "right"))
    if last - first > _MOST_PRICES:
        raise InputError(f"since: {last - first:,} prices exceed the limit of {_MOST_PRICES:,}; give a shorter period")
    for at in range(first, last):
        answer.prices.add(time=wire.moment(float(times[at])), per_hour=float(trace.prices[at]))
    return answer


def _policies() -> catalog_pb2.ListPoliciesResponse:
    from goffish.scheduling.policies.policies import POLICIES, looks_ahead, policy_names, policy_schema

    answer = catalog_pb2.ListPoliciesResponse()
    for name in policy_names():
        summary = POLICIES[name].summary if name in POLICIES else f"initial deployment of {name[7:]}, never adapted"
        one = answer.policies.add(name=name, summary=summary, looks_ahead=looks_ahead(name))
        one.options.update(policy_schema(name))
    return answer


def _algorithms() -> catalog_pb2.ListAlgorithmsResponse:
    from goffish.algorithms.catalogue import ALGORITHMS

    answer = catalog_pb2.ListAlgorithmsResponse()
    for name, model in ALGORITHMS.items():
        answer.algorithms.add(name=name, summary=model.title).options.update(model.model_json_schema())
    return answer

"""gRPC service of plans: `goffish.v1.PlanningService`. Stateless except for the sessions of policies."""

from __future__ import annotations

import hashlib
from typing import Any

from goffish.errors import InputError
from goffish.services.api import plans
from goffish.services.api.admission import check_policy_sizes
from goffish.services.api.cache import OwnerCache
from goffish.services.api.calls import FairThreads, elsewhere
from goffish.services.api.guard import caller
from goffish.services.api.observations import observation_of
from goffish.services.api.planners import Planners
from goffish.services.api.spot_advice import Markets, Strategy, strategy
from goffish.v1 import planning_pb2, planning_pb2_grpc

#: Maximum bytes of a cached setting, and of all cached settings when parsed.
_SETTING_BYTES, _SETTINGS_BYTES = 64 << 10, 32 << 20
#: Maximum bytes of sessions, per client and in total; seconds until an unused session expires.
_CLIENT_BYTES, _SESSIONS_BYTES, _SESSION_S = 16 << 20, 256 << 20, 3600.0
_SESSION_NAME = 200
#: Threads that parse and check settings, so that large ones do not delay short calls.
_READERS = 2
#: Maximum bytes of cached strategy tables.
_TABLES_BYTES = 512 << 20


class PlanningService(planning_pb2_grpc.PlanningServiceServicer):  # type: ignore[misc, unused-ignore]
    """Compute, adapt and explain plans, and advise spot jobs.

    Parameters
    ----------
    markets : Markets
    planners : Planners
        Processes for expensive plans.
    max_option : int
        Maximum value of an integer policy option.
    """

    def __init__(self, markets: Markets, planners: Planners, max_option: int) -> None:
        self._markets, self._planners, self._most_option = markets, planners, max_option
        self._readers = FairThreads(_READERS, _READERS, "read")
        self._settings: OwnerCache[plans.Ready] = OwnerCache(_SETTINGS_BYTES, _SETTINGS_BYTES)
        self._strategies: OwnerCache[Strategy] = OwnerCache(_TABLES_BYTES, _TABLES_BYTES)
        self._sessions: OwnerCache[bytes] = OwnerCache(_CLIENT_BYTES, _SESSIONS_BYTES, _SESSION_S)

    async def Plan(self, request: planning_pb2.PlanRequest, context: Any) -> planning_pb2.PlanResponse:
        """Compute the initial deployment."""
        ready = await self._ready(request.setting)
        if ready is not None and ready.dearest is not None:
            flow = plans.with_rates(ready.flow, request.rates)
            if ready.quick(flow.rates):
                return plans.planned(ready, flow)
        return await self._planners.share(_key(request), plans.plan, ready, request)

    async def Adapt(self, request: planning_pb2.AdaptRequest, context: Any) -> planning_pb2.AdaptResponse:
        """Compute the deployment of the next interval."""
        answer: planning_pb2.AdaptResponse = await self._adapted(request)
        return answer

    async def PlanAhead(self, request: planning_pb2.PlanAheadRequest, context: Any) -> planning_pb2.PlanAheadResponse:
        """Compute the deployment of the next interval with forecasts."""
        plans.check_forecast(request)
        answer: planning_pb2.PlanAheadResponse = await self._adapted(request)
        return answer

    async def AdviseSpot(
        self, request: planning_pb2.AdviseSpotRequest, context: Any
    ) -> planning_pb2.AdviseSpotResponse:
        """Return the recommended action of a job on spot machines."""
        asked = await elsewhere(self._markets.read, request)
        found = self._strategies.get("", asked.key)
        if found is None:
            found = await self._planners.share(asked.key, strategy, asked.fitted, *asked.key[1:])
            self._strategies.put("", asked.key, found, found.bytes)
        return await elsewhere(asked.answer, found)

    async def Explain(self, request: planning_pb2.ExplainRequest, context: Any) -> planning_pb2.ExplainResponse:
        """Explain a plan."""
        return await self._planners.share(_key(request), plans.explain, await self._ready(request.setting), request)

    async def _ready(self, setting: planning_pb2.Setting) -> plans.Ready | None:
        """Return the parsed setting, or ``None`` if it is too large for the cache and is parsed by the worker."""
        check_policy_sizes(
            setting.policy or plans.DEFAULT_POLICY, setting.options, self._most_option, "setting.options"
        )
        if setting.ByteSize() > _SETTING_BYTES:
            return None
        key = _key(setting)
        known = self._settings.get("", key)
        if known is not None:
            return known
        found, size = await elsewhere(plans.read, setting, threads=self._readers)
        self._settings.put("", key, found, size)
        return found

    async def _adapted(self, request: planning_pb2.AdaptRequest | planning_pb2.PlanAheadRequest) -> Any:
        if len(request.session) > _SESSION_NAME:
            raise InputError(f"session: {len(request.session):,} characters; at most {_SESSION_NAME} are accepted")
        ready, client = await self._ready(request.setting), caller.get().name
        # The state of a session belongs to one setting.
        session = (request.session, _key(request.setting)) if request.session else None
        memory = None if session is None else self._sessions.get(client, session)
        observation = None
        if ready is not None and ready.dearest is not None and plans.easily_read(request):
            observation = observation_of(request.observations, ready.flow, ready.catalogue)
            observation = observation if plans.quickly_adapted(ready, observation) else None
        if ready is not None and observation is not None:
            answer, kept = plans.adapted(ready, request, observation, memory)
        else:
            answer, kept = await self._planners.call(plans.adapt, ready, request, memory)
        if session is not None:
            self._sessions.put(client, session, kept, len(kept))
        return answer


def _key(message: Any) -> bytes:
    """Return equal keys for equal messages."""
    return hashlib.sha256(
        message.DESCRIPTOR.full_name.encode() + message.SerializeToString(deterministic=True)
    ).digest()

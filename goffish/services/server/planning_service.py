"""Plans by gRPC: `goffish.v1.PlanningService`. Nothing is run, and nothing but a session's memory is kept."""

from __future__ import annotations

import hashlib
from typing import Any

from goffish.errors import InputError
from goffish.services.server import plans
from goffish.services.server.calls import elsewhere
from goffish.services.server.guard import caller
from goffish.services.server.kept import Kept
from goffish.services.server.planners import Planners
from goffish.services.server.situations import situation_of
from goffish.services.server.spot_advice import Markets
from goffish.v1 import planning_pb2, planning_pb2_grpc

#: Bytes of a setting that is remembered, and of all of them when they are read.
_SETTING_BYTES, _SETTINGS_BYTES = 64 << 10, 32 << 20
#: Bytes of the sessions of a client, and of all; seconds after which one is forgotten.
_CLIENT_BYTES, _SESSIONS_BYTES, _SESSION_S = 16 << 20, 256 << 20, 3600.0
_SESSION_NAME = 200


class PlanningService(planning_pb2_grpc.PlanningServiceServicer):  # type: ignore[misc, unused-ignore]
    """Plans, adapts, advises and explains.

    Parameters
    ----------
    markets : Markets
    planners : Planners
        For plans that are not made in a moment.
    """

    def __init__(self, markets: Markets, planners: Planners) -> None:
        self._markets, self._planners = markets, planners
        self._settings: Kept[plans.Ready] = Kept(_SETTINGS_BYTES, _SETTINGS_BYTES)
        self._sessions: Kept[bytes] = Kept(_CLIENT_BYTES, _SESSIONS_BYTES, _SESSION_S)

    async def Plan(self, request: planning_pb2.PlanRequest, context: Any) -> planning_pb2.PlanResponse:
        """The first deployment."""
        ready = await self._ready(request.setting)
        if ready is not None and ready.dearest is not None:
            flow = plans.with_rates(ready.flow, request.rates)
            if ready.quick(flow.rates):
                return plans.planned(ready, flow)
        return await self._planners.call(plans.plan, ready, request)

    async def Adapt(self, request: planning_pb2.AdaptRequest, context: Any) -> planning_pb2.AdaptResponse:
        """The deployment of the interval that begins."""
        answer: planning_pb2.AdaptResponse = await self._adapted(request)
        return answer

    async def PlanAhead(self, request: planning_pb2.PlanAheadRequest, context: Any) -> planning_pb2.PlanAheadResponse:
        """The same with forecasts."""
        plans.check_forecast(request)
        answer: planning_pb2.PlanAheadResponse = await self._adapted(request)
        return answer

    async def AdviseSpot(
        self, request: planning_pb2.AdviseSpotRequest, context: Any
    ) -> planning_pb2.AdviseSpotResponse:
        """What a job on spot machines should do now."""
        return await elsewhere(self._markets.advise, request)

    async def Explain(self, request: planning_pb2.ExplainRequest, context: Any) -> planning_pb2.ExplainResponse:
        """Why a plan is as it is."""
        return await self._planners.call(plans.explain, await self._ready(request.setting), request)

    async def _ready(self, setting: planning_pb2.Setting) -> plans.Ready | None:
        """The setting; none if it is so large that it is read where it is needed, and not remembered."""
        if setting.ByteSize() > _SETTING_BYTES:
            return None
        key = hashlib.sha256(setting.SerializeToString(deterministic=True)).digest()
        known = self._settings.get("", key)
        if known is not None:
            return known
        found, size = await elsewhere(plans.read, setting)
        self._settings.put("", key, found, size)
        return found

    async def _adapted(self, request: planning_pb2.AdaptRequest | planning_pb2.PlanAheadRequest) -> Any:
        if len(request.session) > _SESSION_NAME:
            raise InputError(f"session: {len(request.session):,} characters; at most {_SESSION_NAME}")
        ready, client = await self._ready(request.setting), caller.get().name
        memory = self._sessions.get(client, request.session) if request.session else None
        situation = None
        if ready is not None and ready.dearest is not None and plans.easily_read(request):
            situation = situation_of(request.observations, ready.flow, ready.catalogue)
            situation = situation if plans.quickly_adapted(ready, situation) else None
        if ready is not None and situation is not None:
            answer, kept = plans.adapted(ready, request, situation, memory)
        else:
            answer, kept = await self._planners.call(plans.adapt, ready, request, memory)
        if request.session:
            self._sessions.put(client, request.session, kept, len(kept))
        return answer

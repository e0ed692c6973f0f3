"""The policies as their papers describe them; the defaults of the package differ where that pays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goffish.scheduling.policies.observation import Policy
from goffish.scheduling.policies.policies import make_policy
from goffish.scheduling.policies.reactive import Reactive

OPTIONS = {"reactive-global": {"alternates": "ratio"}, "plasticc": {"constraint": "interval"}}

#: The reactive heuristics with the published choice of alternates.
Published = partial(Reactive, alternates="ratio")


def published(name: str, options: Mapping[str, Any] | None = None) -> Policy:
    """Create a policy by its name, with the published rules."""
    return make_policy(name, OPTIONS.get(name.removeprefix("static-"), {}) | dict(options or {}))

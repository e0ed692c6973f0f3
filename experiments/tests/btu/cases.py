"""Runs of the evaluation, each made once."""

from __future__ import annotations

import functools

import numpy as np

from experiments.btu.item_results import ItemResult
from experiments.btu.item_world import Trace
from experiments.btu.items import ItemSetting, machine_trace, run_items
from experiments.btu.patterns import machines_of
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.btu.controller import Autoscaler, BtuController
from goffish.scheduling.policies.btu.model import Settings
from goffish.scheduling.policies.btu.threshold import ThresholdController

VISP = compile_flow(read_dataflow("visp-oee"))
PLAIN = Settings()
#: The variant that behaves as published (docs/specs/btu.md, section 7.4, X12).
PUBLISHED = Settings(cap=1.0, donors=0, double_above=250.0, rest_s=180.0)


@functools.cache
def trace(pattern: str, minutes: int, seed: int = 0) -> Trace:
    """What comes in; `pattern` may be machines and minutes, as in ``8x30 2x90``."""
    if "x" in pattern:
        parts = [part.split("x") for part in pattern.split()]
        return machine_trace(VISP, np.concatenate([np.full(int(n), int(m)) for m, n in parts]))
    return machine_trace(VISP, machines_of(pattern, minutes, seed))


@functools.cache
def run(
    pattern: str, unit_min: float | None, seed: int, *, share: float = 0.1, settings: Settings = PLAIN,
    minutes: int = 120, noise: float = 0.3,
) -> ItemResult:  # fmt: skip
    """A run; without a unit under the threshold controller (billed by the hour unless asked otherwise)."""
    controller: Autoscaler = ThresholdController(settings) if unit_min is None else BtuController(settings)
    setting = ItemSetting(unit_s=60.0 * (unit_min or 60.0), service_share=share, noise=noise)
    return run_items(VISP, trace(pattern, minutes), controller, setting, seed)


def mean(results: list[ItemResult], what: str) -> float:
    """Of ``RT``, ``NRT`` or ``REL`` in per cent, of ``changes`` or of ``cost``."""
    if what in ("RT", "NRT", "REL"):
        level = ("RT", "NRT", "REL").index(what)
        return float(np.mean([100 * r.compliance()[level] for r in results]))
    return float(np.mean([r.resource_cost() if what == "cost" else r.changes for r in results]))

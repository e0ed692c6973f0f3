"""Names of modules before version 0.2: importing one gives the module of today, with a `DeprecationWarning`."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Sequence

#: Packages and modules that documentation named, longest first where one contains another.
MOVED = {
    "goffish.algorithms.counts": "goffish.algorithms.clustering",
    "goffish.algorithms.louvain": "goffish.algorithms.communities",
    "goffish.algorithms.ranks": "goffish.algorithms.pagerank",
    "goffish.algorithms.temporal": "goffish.temporal",
    "goffish.client.definitions": "goffish.client.requests",
    "goffish.services.cloud": "goffish.cloud",
    "goffish.services.dataflows": "goffish.scheduling.dataflow",
    "goffish.services.graph_jobs": "goffish.scheduling.estimate",
    "goffish.services.provisioning.situation": "goffish.scheduling.policies.observation",
    "goffish.services.provisioning": "goffish.scheduling.policies",
    **{
        f"goffish.services.simulation.{name}": f"goffish.scheduling.control.{name}"
        for name in ("cluster", "failures", "forecasts", "records")
    },
    "goffish.services.simulation.controller": "goffish.scheduling.control.loop",
    "goffish.services.simulation.control": "goffish.scheduling.control.loop",
    "goffish.services.simulation.series": "goffish.scheduling.control.forecasts",
    "goffish.services.simulation": "goffish.scheduling.simulate",
    "goffish.services.spot.billing": "goffish.cloud.billing",
    "goffish.services.spot.histories": "goffish.cloud.price_files",
    "goffish.services.spot.prices": "goffish.cloud.prices",
    "goffish.services.spot": "goffish.scheduling.spot",
    "goffish.streaming.ingest": "goffish.spark.ingest",
    "goffish.timeseries": "goffish.temporal",
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules by their earlier names, before a parent's folder is searched for them."""

    _own: importlib.machinery.ModuleSpec | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return None if current_name(fullname) is None else importlib.machinery.ModuleSpec(fullname, _Finder())

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        name = current_name(spec.name)
        assert name is not None
        warnings.warn(f"{spec.name} is now {name}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(name)
        self._own = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._own  # the import system has written the earlier name there


def current_name(name: str) -> str | None:
    """Today's name of a module that had another one, or ``None``."""
    for before, now in MOVED.items():
        if name == before or name.startswith(f"{before}."):
            return now + name.removeprefix(before)
    return None


def install() -> None:
    """Make earlier names importable."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())

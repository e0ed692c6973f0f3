"""What Prometheus is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters of a server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter("goffish_calls", "Calls that ended.", ["method", "code"], registry=self.registry)
        self._seconds = Histogram(
            "goffish_call_seconds", "Time of calls.", ["method"], buckets=_SECONDS, registry=self.registry
        )
        self._children: dict[tuple[str, str], tuple[Any, Any]] = {}

    def called(self, method: str, code: str, seconds: float) -> None:
        """A call ended."""
        found = self._children.get((method, code))
        if found is None:
            found = self._calls.labels(method, code), self._seconds.labels(method)
            self._children[method, code] = found
        found[0].inc()
        found[1].observe(seconds)

    def watch(self, jobs: Callable[[], Mapping[str, int]]) -> None:
        """Tell how many jobs are in each state whenever somebody asks."""
        self.registry.register(_Jobs(jobs))

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return bytes(generate_latest(self.registry))


class _Jobs:
    def __init__(self, jobs: Callable[[], Mapping[str, int]]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The family of gauges."""
        family = GaugeMetricFamily("goffish_jobs", "Jobs in each state.", labels=["state"])
        for state, count in self._jobs().items():
            family.add_metric([state], count)
        yield family

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """What it is, without asking the database."""
        return [GaugeMetricFamily("goffish_jobs", "Jobs in each state.", labels=["state"])]

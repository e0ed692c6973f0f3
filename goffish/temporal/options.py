"""What every application over a time series states about itself: name, options, and its program.

As with algorithms (`goffish.algorithms.algorithm`), importing an option model is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from goffish.algorithms.algorithm import Label, Options
from goffish.errors import InputError

if TYPE_CHECKING:
    from goffish.algorithms.algorithm import Note
    from goffish.gofs.series import Series
    from goffish.temporal.event_series import EventNames, PathQuery
    from goffish.temporal.program import TimeSeriesProgram
    from goffish.temporal.run import SeriesResult


def _as_labels(value: Any) -> Any:
    return [label.strip() for label in value.split(",")] if isinstance(value, str) else value


Labels = Annotated[list[Label] | None, BeforeValidator(_as_labels), WithJsonSchema({"type": "string"})]
_TIMES = "Edge attribute with a list of the times of events, as built with --attribute times=list:COLUMN."
_EXISTS = "Boolean edge attribute that states existence [default: all edges exist in every instance]."


class Application(Options):
    """Base of all applications."""

    def program(self, series: Series) -> TimeSeriesProgram:
        """The program for the engines."""
        raise InputError(f"{self.name} does not run on the engine")

    def labels(self) -> list[int | str]:
        """Vertex labels among the options, which must be vertices of the template."""
        return []

    def answer(self, series: Series, running: dict[str, Any], note: Note | None = None) -> SeriesResult:
        """Run it; `running` are options of `goffish.temporal.run.run_series`."""
        from goffish.temporal.run import run_series

        return run_series(self.program(series), series, **running)

    def answer_in_memory(self, series: Series, **running: Any) -> SeriesResult | None:
        """The same answer from whole instances in memory, None where there is no such way, or too little memory.

        `running`: ``start``, ``end``, ``side_by_side`` (instances at a time, or None) and ``note``.
        """
        return None


class TimeDependentShortestPaths(Application):
    """Earliest arrivals from one vertex (docs/specs/time-series.md, section 4.1)."""

    name = "tdsp"
    title = "Earliest arrival at every vertex along edges with time-dependent latencies."

    source: Label = Field(description="Label of the source vertex.")
    latency: str = Field(default="latency", description="Edge attribute: travel time, in the time unit of the series.")
    exists: str | None = Field(default=None, description=_EXISTS)
    semantics: Literal["window", "departure"] = Field(
        default="window",
        description="window: an edge must be traversed within one instance; departure: at its latency on departure.",
    )

    def program(self, series: Series) -> TimeSeriesProgram:
        from goffish.temporal.tdsp import TimeDependentShortestPath

        return TimeDependentShortestPath(self.source, self.latency, self.exists, self.semantics)

    def labels(self) -> list[int | str]:
        return [self.source]


class TemporalPaths(Application):
    """Time-respecting paths along time-stamped edges (Wu et al., VLDB 2014)."""

    name = "temporal-paths"
    title = "Time-respecting paths from or to a vertex: arrival, departure, duration or hops of the best one."

    vertex: Label = Field(description="Source of the paths; for latest-departure, their target.")
    times: str = Field(default="times", description=_TIMES)
    kind: Literal["earliest-arrival", "latest-departure", "fastest", "fewest-hops"] = Field(
        default="earliest-arrival", description="What to optimize."
    )
    duration: str | int = Field(
        default=0,
        description="Travel time: a number, or an edge attribute with one per event or per edge and instance.",
    )
    earliest_departure: int | None = Field(default=None, description="Earliest departure time [default: none].")
    latest_arrival: int | None = Field(default=None, description="Latest arrival time [default: none].")
    undirected: bool = Field(default=False, description="Follow directed edges in both directions.")

    def _names(self, series: Series) -> EventNames:
        """Return the attributes of events, which the series must have."""
        from goffish.temporal.event_series import EventNames

        given = self.duration
        if isinstance(given, str) and given.removeprefix("-").isdigit():
            given = int(given)
        if isinstance(given, int) and given < 0:
            raise InputError(f"duration={given}: must be at least 0")
        names = EventNames(self.times, given)
        names.check(series.schema)
        return names

    def program(self, series: Series) -> TimeSeriesProgram:
        from goffish.temporal.event_programs import EventPaths

        return EventPaths(self._query(), self._names(series))

    def _query(self) -> PathQuery:
        from goffish.temporal.event_series import PathQuery

        return PathQuery(self.vertex, self.kind, self.earliest_departure, self.latest_arrival, self.undirected)

    def labels(self) -> list[int | str]:
        return [self.vertex]

    def answer_in_memory(self, series: Series, **running: Any) -> SeriesResult | None:
        from goffish.temporal import event_series as whole

        names = self._names(series)
        series.graph.find(self.vertex)
        if not whole.events_fit(series, names):
            return None
        return whole.paths_in_memory(series, names, self._query(), **running)


class TemporalTriangles(Application):
    """Triangles of time-stamped edges (Paranjape, Benson & Leskovec, WSDM 2017)."""

    name = "temporal-triangles"
    title = "Temporal triangles within a time span, by order and direction of their edges."

    within: int = Field(ge=0, description="Maximum time from the first edge to the last, in the unit of the times.")
    times: str = Field(default="times", description=_TIMES)
    order: str | None = Field(
        default=None, description="Edge attribute with a list that orders events of equal times [default: by vertices]."
    )

    def _names(self, series: Series) -> EventNames:
        """Return the attributes of events, which the series must have."""
        from goffish.temporal.event_series import EventNames

        if not series.graph.info.directed:
            raise InputError("temporal-triangles: the series is undirected; build it with directed edges (--directed)")
        names = EventNames(self.times, order=self.order)
        names.check(series.schema)
        return names

    def program(self, series: Series) -> TimeSeriesProgram:
        from goffish.temporal.event_programs import EventTriangles

        return EventTriangles(self.within, self._names(series))

    def answer_in_memory(self, series: Series, **running: Any) -> SeriesResult | None:
        from goffish.temporal import event_series as whole

        names = self._names(series)
        if not whole.events_fit(series, names):
            return None
        return whole.triangles_in_memory(series, names, self.within, **running)


class Memes(Application):
    """Contiguous spread of a meme (docs/specs/time-series.md, section 4.2)."""

    name = "memes"
    title = "Timestep in which a meme first reaches each vertex by contact."

    meme: str | int = Field(description="Meme to track.")
    attribute: str = Field(default="memes", description="Vertex attribute: the memes of a vertex, one value or a list.")
    sources: Labels = Field(
        default=None,
        description="Source vertices, such as a,b,c [default: all vertices that hold it in the first instance].",
    )
    must_hold: bool = Field(default=False, description="Spread the meme only from vertices that hold it.")

    def program(self, series: Series) -> TimeSeriesProgram:
        from goffish.temporal.memes import MemeTracking

        kind = series.schema[f"vertex.{self.attribute}"].type
        return MemeTracking(_value(self.meme, kind), self.attribute, self.sources, self.must_hold)

    def labels(self) -> list[int | str]:
        return list(self.sources or [])


class Hashtags(Application):
    """Occurrences in every instance (docs/specs/time-series.md, section 4.3)."""

    name = "hashtags"
    title = "Occurrences of a hashtag in every instance, their change, and the total."

    hashtag: str | int = Field(description="Hashtag to count.")
    attribute: str = Field(default="memes", description="Vertex attribute: the memes of a vertex, one value or a list.")

    def program(self, series: Series) -> TimeSeriesProgram:
        from goffish.temporal.memes import HashtagAggregation

        kind = series.schema[f"vertex.{self.attribute}"].type
        return HashtagAggregation(_value(self.hashtag, kind), self.attribute)


class _OfInstances(Application):
    edge_exists: str | None = Field(
        default=None, description="Boolean edge attribute that states existence [default: exists, if available]."
    )
    vertex_exists: str | None = Field(
        default=None, description="Boolean vertex attribute that states existence [default: exists, if available]."
    )

    def flags(self, series: Series) -> tuple[str | None, str | None]:
        """Names of the two attributes."""
        found = []
        for place, given in (("edge", self.edge_exists), ("vertex", self.vertex_exists)):
            found.append(given or ("exists" if f"{place}.exists" in series.schema else None))
        return found[0], found[1]


class ComponentsOfInstances(_OfInstances):
    """Weakly connected components (docs/specs/time-series.md, section 4.4)."""

    name = "components"
    title = "Weakly connected components of every instance."

    def program(self, series: Series) -> TimeSeriesProgram:
        from goffish.temporal.instances import InstanceComponents

        return InstanceComponents(*self.flags(series))

    def answer_in_memory(self, series: Series, **running: Any) -> SeriesResult | None:
        from goffish.temporal import in_memory as whole

        if not whole.fits(series):
            return None
        return whole.components_of_instances(series, *self.flags(series), **running)


class PageRankOfInstances(_OfInstances):
    """PageRank (docs/specs/time-series.md, section 4.4)."""

    name = "pagerank"
    title = "PageRank of every instance."

    damping: float = Field(default=0.85, ge=0, lt=1, description="Probability of following an arc.")
    iterations: int = Field(default=100, ge=1, description="Maximum number of updates.")
    tolerance: float = Field(default=1e-9, ge=0, description="Stop after an update with a smaller L1 change.")

    def program(self, series: Series) -> TimeSeriesProgram:
        from goffish.temporal.instances import InstancePageRank

        return InstancePageRank(self.damping, self.iterations, self.tolerance, *self.flags(series))

    def answer_in_memory(self, series: Series, **running: Any) -> SeriesResult | None:
        from goffish.temporal import in_memory as whole

        if not whole.fits(series):
            return None
        wanted = (self.damping, self.iterations, self.tolerance)
        return whole.ranks_of_instances(series, *wanted, *self.flags(series), **running)


class Vehicles(Application):
    """Where a vehicle was seen (docs/specs/time-series.md, section 4.4)."""

    name = "vehicles"
    title = "Where a vehicle was seen in every instance, within its driving distance."

    plate: str | int = Field(description="License plate of the vehicle.")
    last_seen: Label = Field(description="Label of the vertex where the vehicle was at the start.")
    max_speed: float = Field(gt=0, description="Maximum speed: distance per time unit of the series.")
    distance: str = Field(default="distance", description="Edge attribute: length of the edge.")
    plates: str = Field(default="plates", description="Vertex attribute: observed license plates, one value or a list.")

    def program(self, series: Series) -> TimeSeriesProgram:
        from goffish.temporal.vehicles import VehicleTracking

        kind = series.schema[f"vertex.{self.plates}"].type
        return VehicleTracking(_value(self.plate, kind), self.last_seen, self.max_speed, self.distance, self.plates)

    def labels(self) -> list[int | str]:
        return [self.last_seen]


class Communities(_OfInstances):
    """Louvain in every instance, and how its communities go on (Greene, Doyle & Cunningham, ASONAM 2010)."""

    name = "communities"
    title = "Communities of every instance, matched over time: born, died, grown, merged, split."

    weight: str | None = Field(default=None, description="Edge attribute with weights [default: weight, if available].")
    threshold: float = Field(
        default=0.3, gt=0, le=1, description="Minimum Jaccard index to match a community over time."
    )
    resolution: float = Field(
        default=1.0, ge=0, description="Resolution: above 1 for smaller communities, below 1 for larger ones."
    )
    seed: int = Field(default=0, ge=0, description="Random seed.")

    def answer(self, series: Series, running: dict[str, Any], note: Note | None = None) -> SeriesResult:
        from goffish.gopher import RunOptions

        options = running.pop("options", RunOptions())
        given = {name: value for name, value in vars(options).items() if value != getattr(RunOptions, name)}
        engine = given.pop("engine", "local")
        for name in [*running.keys() - {"start", "end"}, *(name for name in _OF_CHECKPOINTS if name in given)]:
            raise InputError(f"communities: {name} does not apply: Louvain runs on one instance after the other")
        return self._evolve(series, engine=engine, running=given, note=note, **running)

    def answer_in_memory(self, series: Series, *, side_by_side: int | None = None, **running: Any) -> SeriesResult:
        return self._evolve(series, threads=side_by_side, **running)

    def _evolve(self, series: Series, **running: Any) -> SeriesResult:
        from goffish.temporal.communities import evolve
        from goffish.temporal.instance_graph import graphs_of

        graphs = graphs_of(series, *self.flags(series), self.weight)
        return evolve(graphs, threshold=self.threshold, resolution=self.resolution, seed=self.seed, **running)


#: Options of a run that have no meaning for many graphs, one after the other.
_OF_CHECKPOINTS = ("checkpoint_dir", "checkpoint_every", "resume", "output")


def _value(given: str | int, kind: str) -> str | int | bool:
    """What was asked for, in the type of the attribute: command lines give texts only."""
    if kind in ("string", "list<string>"):
        return str(given)
    if kind == "bool":
        return str(given).lower() in ("1", "true", "yes")
    return int(given) if isinstance(given, str) and given.lstrip("-").isdigit() else given


APPLICATIONS: dict[str, type[Application]] = {
    a.name: a
    for a in (
        TimeDependentShortestPaths, TemporalPaths, TemporalTriangles, Memes, Hashtags, ComponentsOfInstances,
        PageRankOfInstances, Vehicles, Communities,
    )
}  # fmt: skip

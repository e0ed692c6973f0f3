"""Continuous queries by their definition: all answers are computed from scratch after every tick, and compared.

Slow, and as simple as possible: the oracle of the engine. `Reference.events` has what topics publish, in order.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import networkx as nx

from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.checks import Checked, check
from goffish.streaming.graphs.cgql.parser import parse

RANKS = {
    "UNREACHABLE": 0, "LEFT": 0, "UNMATCHED": 0, "CLEARED": 0, "DISAPPEARED": 0, "MERGED": 1, "SPLIT": 2, "CREATED": 3,
    "REACHABLE": 3, "ENTERED": 3, "MATCHED": 3, "RAISED": 3, "EVOLVED": 3, "GROWN": 4, "JOINED": 5, "PARTED": 6,
    "CLOSED": 7,
}  # fmt: skip
PRESENT = {"CREATED", "SPLIT", "REACHABLE", "ENTERED", "MATCHED", "RAISED", "EVOLVED", "JOINED"}
TRACK_S, HORIZON_S = 24 * 3600.0, 3600.0
#: Of patterns, by their text.
AUTOMORPHISMS: dict[str, list[tuple[list[str], list[int]]]] = {}


class Event(NamedTuple):
    """What a topic publishes; `released` is the time of the tick at which it did."""

    t: float
    topic: str
    status: str
    key: Any
    values: dict[str, Any]
    initial: bool = False
    released: float = 0.0
    vertices: frozenset[Any] = frozenset()


def order(key: Any) -> Any:
    """Sort key: numbers before texts, tuples and lists element by element."""
    if isinstance(key, tuple | list):
        return (2, tuple(map(order, key)))
    return (0, key) if isinstance(key, int | float) else (1, key)


class Graph:
    """The attributed graph."""

    def __init__(self) -> None:
        self.vertices: dict[Any, dict[str, Any]] = {}
        self.edges: dict[Any, tuple[Any, Any, dict[str, Any]]] = {}
        self.seen: dict[Any, float] = {}

    def apply(self, time: float, update: dict[str, Any]) -> None:
        op, id, attributes = update["op"], update.get("id"), update.get("attrs", {})
        if op == "txn":
            for one in update["updates"]:
                self.apply(time, one)
            return
        if id is None and "e" in op:
            id = f"{update['src']}>{update['dst']}:{attributes.get('type', '')}"
        match op:
            case "+v" | "+av":
                self.vertices.setdefault(id, {}).update(attributes)
            case "-v":
                self.edges = {n: e for n, e in self.edges.items() if id not in e[:2]}
                self.vertices.pop(id, None)
            case "+e":
                ends = update["src"], update["dst"]
                known = self.edges.get(id)
                if known is None or known[:2] == ends:
                    for end in ends:
                        self.vertices.setdefault(end, {})
                    self.edges[id] = *ends, (known[2] if known else {}) | attributes
                    self.seen[id] = time
            case "-e":
                self.edges.pop(id, None)
            case "-av" | "-ae":
                element = self.vertices.get(id, {}) if op == "-av" else self.edges.get(id, ((), (), {}))[2]
                for name in update["names"]:
                    element.pop(name, None)
            case "+ae":
                if id in self.edges:
                    self.edges[id][2].update(attributes)


def compares(left: Any, operator: str, right: Any) -> bool:
    """Whether values compare; lists if any of their elements do, or all of them for ``!=``."""
    if left is None or right is None:
        return False
    if isinstance(left, list):
        return (all if operator == "!=" else any)(compares(one, operator, right) for one in left)
    if isinstance(right, list):
        return (all if operator == "!=" else any)(compares(left, operator, one) for one in right)
    kinds = ["bool" if isinstance(one, bool) else "text" if isinstance(one, str) else "number" for one in (left, right)]
    if kinds[0] != kinds[1] or (kinds[0] == "bool" and operator not in ("=", "!=")):
        return False
    match operator:
        case "=":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
    return bool(left >= right)


def attribute(element: dict[str, Any], reference: syntax.Reference) -> Any:
    names = reference.names
    return element.get(names[-1] if names[0] in ("node", "vertex", "edge") and len(names) > 1 else ".".join(names))


def holds(given: Any, element: dict[str, Any], clusters: dict[str, dict[int, set[Any]]]) -> bool:
    """Whether a predicate holds for the attributes of an element, with its id among them."""
    part: Any = given
    match given:
        case syntax.Predicates() | syntax.All():
            return all(holds(one, element, clusters) for one in part.parts)
        case syntax.Any():
            return any(holds(one, element, clusters) for one in part.parts)
        case syntax.Not():
            return not holds(part.part, element, clusters)
        case syntax.Has():
            return attribute(element, part.of) is not None
        case syntax.Bare():
            return compares(element.get("type"), "=", str(part.operand))
        case syntax.OneOf():
            return any(compares(attribute(element, part.left), "=", one.value) for one in part.values)
        case syntax.Member():
            return any(element["id"] in members for members in clusters[part.topic].values())
    return compares(attribute(element, part.left), part.operator, part.right.value)


class View:
    """What a query sees: the vertices and edges that satisfy its constraints."""

    def __init__(self, graph: Graph, query: syntax.Query, now: float, clusters: Any) -> None:
        def constraint(*names: str) -> list[Any]:
            return [
                one.predicates for one in query.where if isinstance(one, syntax.NamedPredicates) and one.name in names
            ]

        span = math.inf if query.window is None else query.window.micros / 1e6
        self.vertices = {
            v: attributes | {"id": v} for v, attributes in graph.vertices.items()
            if all(holds(one, attributes | {"id": v}, clusters) for one in constraint("node", "vertex"))
        }  # fmt: skip
        edges = {id: (a, b, one | {"id": id, "time": graph.seen[id]}) for id, (a, b, one) in graph.edges.items()}
        self.edges = {
            id: (a, b, attributes) for id, (a, b, attributes) in edges.items()
            if a in self.vertices and b in self.vertices and graph.seen[id] > now - span
            and all(holds(one, attributes, clusters) for one in constraint("edge"))
        }  # fmt: skip
        self.next: dict[str, dict[Any, set[Any]]] = {"out": defaultdict(set), "in": defaultdict(set)}
        for a, b, _ in self.edges.values():
            self.next["out"][a].add(b)
            self.next["in"][b].add(a)

    def neighbors(self, vertex: Any, direction: str) -> set[Any]:
        found: set[Any] = set()
        for one in ("out", "in") if direction == "both" else (direction,):
            found |= self.next[one][vertex]
        return found

    def distances(self, seeds: Iterable[Any], direction: str, most: float) -> dict[Any, int]:
        found = dict.fromkeys(seeds, 0)
        queue = deque(found)
        while queue:
            one = queue.popleft()
            if found[one] < most:
                for other in self.neighbors(one, direction) - found.keys():
                    found[other] = found[one] + 1
                    queue.append(other)
        return found

    def components(self, kept: set[Any]) -> list[set[Any]]:
        graph: Any = nx.Graph()
        graph.add_nodes_from(kept)
        graph.add_edges_from((a, b) for a, b, _ in self.edges.values() if a in kept and b in kept)
        return [set(one) for one in nx.connected_components(graph)]

    def measure(self, operand: Any, members: set[Any]) -> float | None:
        """Return a measure of some vertices; None if it has no value."""
        inner = [(a, b) for a, b, _ in self.edges.values() if a in members and b in members]
        if isinstance(operand, syntax.Aggregate):
            if operand.function == "count" and len(operand.of.names) == 1:
                return len(members)
            values = [self.vertices[v].get(operand.of.names[1]) for v in members if v in self.vertices]
            numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
            match operand.function:
                case "sum":
                    total = math.fsum(numbers)
                    return int(total) if all(isinstance(one, int) for one in numbers) else total
                case "count":
                    return len([one for one in values if one is not None])
                case "avg":
                    return math.fsum(numbers) / len(numbers) if numbers else None
            return (min if operand.function == "min" else max)(numbers, default=None)
        match str(operand):
            case "size":
                return len(members)
            case "edges":
                return len(inner)
            case "density":
                pairs = {frozenset(one) for one in inner if one[0] != one[1]}
                return 2 * len(pairs) / (len(members) * (len(members) - 1)) if len(members) > 1 else None
        graph: Any = nx.Graph()
        graph.add_nodes_from(members)
        graph.add_edges_from(inner)
        return nx.diameter(graph) if nx.is_connected(graph) else None


class Job:
    """A query that runs, with the state that its answers need."""

    def __init__(self, checked: Checked, now: float) -> None:
        self.query, self.topic, self.after = checked.query, checked.topic, checked.after
        given: Any = [one for one in self.query.arguments if isinstance(one, syntax.NamedValue)]
        self.arguments: dict[str, Any] = {one.name: one.value.value for one in given}
        self.start, self.end = now, math.inf
        if isinstance(self.query.duration, syntax.For):
            self.end = now + self.query.duration.span.micros / 1e6
        self.every = None if self.query.every is None else self.query.every.micros / 1e6
        self.answers: dict[Any, dict[str, Any]] = {}
        self.clusters: dict[int, set[Any]] = {}
        self.values: dict[int, dict[str, Any]] = {}
        self.last: dict[int, set[Any]] = {}  # members of clusters that are gone
        self.count = 0
        self.raised: set[Any] = set()
        self.followed: dict[int, tuple[bool, float | None]] = {}  # whether it held, when it disappeared
        self.shown: set[Any] = set()  # keys whose opening event was published
        self.held: list[Event] = []
        self.history: list[Event] = []
        self.unseen: float | None = None  # last tick that was not observed
        self.merged: set[int] = set()
        self.shows_initial = not any(str(one) == "initial = false" for one in self.query.options)

    def predicates(self, name: str) -> syntax.Predicates:
        given: Any = self.query.arguments
        found = [one.predicates for one in given if getattr(one, "name", None) == name]
        return found[0] if found else syntax.Predicates()

    def measures(self) -> list[Any]:
        parts = [*self.query.arguments, *self.query.where]
        compared = [one for one in parts if isinstance(one, syntax.Comparison) and str(one.left) != "status"]
        return [
            one
            for one in compared
            if isinstance(one.left, syntax.Aggregate) or one.left.names[0] not in ("node", "vertex")
        ]


class Reference:
    """An engine that recomputes everything after every tick.

    Attributes
    ----------
    events : list of Event
    """

    def __init__(self) -> None:
        self.graph, self.now, self.last_tick = Graph(), 0.0, 0.0
        self.jobs: dict[str, Job] = {}
        self.gone: dict[str, Job] = {}
        self.events: list[Event] = []

    # Time.

    def submit(self, text: str, **parameters: Any) -> None:
        script = parse(text)
        for one in script.statements:
            if isinstance(one, syntax.Cancel):
                self.end(self.jobs[one.topic], self.now, "cancelled")
        known = {topic: job.query for topic, job in (self.gone | self.jobs).items()}
        made = [Job(one, self.now) for one in check(script, parameters, known)]
        for job in made:
            for other in job.after:
                theirs = next(one for one in [*made, *self.jobs.values(), *self.gone.values()] if one.topic == other)
                job.every = job.every or theirs.every
            self.jobs[job.topic] = job
        self.observe(self.now, initial=made)

    def feed(self, records: Iterable[dict[str, Any]]) -> None:
        for record in records:
            self.advance(record["t"])
            self.graph.apply(record["t"], record)
            self.tick(record["t"])

    def advance(self, time: float) -> None:
        """Let boundaries, ends and expirations until a time, this one included, happen."""
        while (instant := self.next_instant()) <= time:
            self.now = instant
            for job in [one for one in self.jobs.values() if one.every is not None]:
                if instant % job.every == 0 and job.unseen is not None:  # type: ignore[operator]
                    self.observe(job.unseen, only=[job])
                    job.unseen = None
            for job in [one for one in self.jobs.values() if one.end == instant]:
                if job.unseen is not None:
                    self.observe(job.unseen, only=[job])
                self.end(job, instant, "expired")
            if any(instant in self.expirations(job) for job in self.jobs.values()):
                self.tick(instant, windowed=True)
        self.now = max(self.now, time)

    def next_instant(self) -> float:
        found = [math.inf]
        for job in self.jobs.values():
            found += [job.end] if job.end > self.now else []
            found += [one for one in self.expirations(job) if one > self.now]
            if job.every is not None and job.unseen is not None:
                found.append((job.unseen // job.every + 1) * job.every)
        return min(found)

    def expirations(self, job: Job) -> set[float]:
        """Return when the edges that a query sees expire."""
        if job.query.window is None or (job.query.pattern == "Match" and not self.of_edges(job)):
            return set()
        clusters = {topic: one.clusters for topic, one in (self.gone | self.jobs).items()}
        view = View(self.graph, replace(job.query, window=None), self.now, clusters)
        predicates = job.predicates("edge")
        seen = [id for id, edge in view.edges.items() if holds(predicates, edge[2], clusters)]
        return {self.graph.seen[id] + job.query.window.micros / 1e6 for id in seen}

    def tick(self, time: float, *, windowed: bool = False) -> None:
        self.now = self.last_tick = time
        for job in self.jobs.values():
            if job.every is not None and (not windowed or time in self.expirations(job)):
                job.unseen = time
        self.observe(time, only=[job for job in self.jobs.values() if job.every is None])

    def end(self, job: Job, time: float, why: str) -> None:
        self.publish(job, Event(time, job.topic, "CLOSED", why, {}, released=time))
        self.gone[job.topic] = self.jobs.pop(job.topic)

    # Observation.

    def observe(self, time: float, only: list[Job] | None = None, initial: list[Job] | None = None) -> None:
        """Compare answers with those before."""
        chosen = initial if initial is not None else only
        assert chosen is not None
        for job in self.in_order(chosen):
            clusters = {topic: one.clusters for topic, one in (self.gone | self.jobs).items()}
            view = View(self.graph, job.query, time if initial is None else self.now, clusters)
            found = sorted(self.step(job, view, clusters, time), key=lambda one: (RANKS[one.status], order(one.key)))
            if initial is not None:
                found = [one._replace(initial=True) for one in found] if job.shows_initial else []
            for event in found:
                self.filtered(job, event._replace(released=self.now if job.every else time))
            job.held = [one for one in job.held if one.t + self.horizon(job) > time]

    def in_order(self, jobs: list[Job]) -> list[Job]:
        found: list[Job] = []
        rest = [one for one in self.jobs.values() if one in jobs]
        while rest:
            for one in rest:
                if not any(other.topic in one.after for other in rest if other is not one):
                    found.append(one)
                    rest.remove(one)
                    break
        return found

    def step(self, job: Job, view: View, clusters: Any, time: float) -> Iterator[Event]:
        pattern = job.query.pattern
        if pattern in ("Cluster", "Component"):
            yield from self.follow_clusters(job, view, clusters, time)
            return
        if pattern == "Evolved":
            yield from self.follow_evolved(job, view, clusters, time)
            return
        answers = self.answers_of(job, view, clusters)
        opening, closing = {
            "Reach": ("REACHABLE", "UNREACHABLE"), "Neighbourhood": ("ENTERED", "LEFT"),
            "Centrality": ("ENTERED", "LEFT"), "Degree": ("RAISED", "CLEARED"),
        }.get(pattern, ("MATCHED", "UNMATCHED"))  # fmt: skip
        for key in job.answers.keys() - answers.keys():
            yield Event(time, job.topic, closing, key, job.answers[key], vertices=self.ends(job, key, clusters))
        for key in answers.keys() - job.answers.keys():
            yield Event(time, job.topic, opening, key, answers[key], vertices=self.ends(job, key, clusters))
        job.answers = answers

    def ends(self, job: Job, key: Any, clusters: Any) -> frozenset[Any]:
        """Return the vertices that an event is about."""
        if job.query.pattern == "Match":
            edge = (
                self.graph.edges.get(key)
                if any(getattr(a, "name", "") == "edge" for a in job.query.arguments)
                else None
            )
            return frozenset(edge[:2]) if edge else frozenset([key])
        if job.query.pattern == "Reach":
            found: set[Any] = set()
            for side, one in zip(("source", "sink"), key, strict=True):
                topic = topic_of(job.predicates(side))
                found |= clusters[topic].get(one, set()) if topic else {one}
            return frozenset(found)
        return frozenset(key[:-1] if job.query.pattern == "Motif" else key if isinstance(key, tuple) else [key])

    @staticmethod
    def of_edges(job: Job) -> bool:
        return any(getattr(one, "name", "") == "edge" for one in job.query.arguments)

    def answers_of(self, job: Job, view: View, clusters: Any) -> dict[Any, dict[str, Any]]:
        arguments, direction = job.arguments, job.arguments.get("direction")
        match job.query.pattern:
            case "Reach":
                return self.reach(job, view, clusters)
            case "Neighbourhood":
                centers = [v for v in view.vertices if holds(job.predicates("center"), view.vertices[v], clusters)]
                return {
                    (c, v): {"hops": hops} for c in centers
                    for v, hops in view.distances([c], direction or "both", arguments["hops"]).items() if hops
                }  # fmt: skip
            case "Match":
                edges = self.of_edges(job)
                elements = {id: e[2] for id, e in view.edges.items()} if edges else view.vertices
                predicates = job.predicates("edge" if edges else "vertex")
                return {id: {} for id, one in elements.items() if holds(predicates, one, clusters)}
            case "Degree":
                return self.degrees(job, view, clusters)
            case "Motif":
                return {key: {} for key in motifs(job.query, view, clusters)}
        return centrality(view, arguments)

    def reach(self, job: Job, view: View, clusters: Any) -> dict[Any, dict[str, Any]]:
        groups: list[dict[Any, set[Any]]] = []
        topics = []
        for side in ("source", "sink"):
            predicates = job.predicates(side)
            topic = topic_of(predicates)
            topics.append(topic)
            chosen = {v for v in view.vertices if holds(predicates, view.vertices[v], clusters)}
            groups.append({v: {v} for v in chosen} if topic is None else {
                id: members & chosen for id, members in clusters[topic].items() if members & chosen
            })  # fmt: skip
        found = {}
        for source, seeds in groups[0].items():
            reached = view.distances(seeds, job.arguments.get("direction", "out"), job.arguments.get("hops", math.inf))
            for sink, members in groups[1].items():
                hops = min((reached[v] for v in members if v in reached), default=None)
                if hops is not None and not (source == sink and topics[0] == topics[1]):
                    found[source, sink] = {"hops": hops}
        return found

    def degrees(self, job: Job, view: View, clusters: Any) -> dict[Any, dict[str, Any]]:
        [comparison] = [one for one in job.query.arguments if isinstance(one, syntax.Comparison)]
        directions = {"both": ("out", "in")}.get(
            job.arguments.get("direction", "both"), (job.arguments.get("direction"),)
        )
        found = {}
        for vertex, attributes in view.vertices.items():
            if not holds(job.predicates("vertex"), attributes, clusters):
                continue
            others = [b for a, b, _ in view.edges.values() if a == vertex and "out" in directions]
            others += [a for a, b, _ in view.edges.values() if b == vertex and "in" in directions]
            degree = len(set(others) - {vertex}) if job.arguments.get("distinct") else len(others)
            stays = vertex in job.answers and "clear" in job.arguments and degree >= job.arguments["clear"]
            if compares(degree, comparison.operator, comparison.right.value) or stays:  # type: ignore[union-attr]
                found[vertex] = {"degree": degree}
        return found

    def follow_clusters(self, job: Job, view: View, clusters: Any, time: float) -> Iterator[Event]:
        comparisons = [one for one in (*job.query.arguments, *job.query.where) if isinstance(one, syntax.Comparison)]
        measures = job.measures()
        of_vertices = [one for one in comparisons if one not in measures and str(one.left) != "status"]
        others = [one for one in job.query.arguments if isinstance(one, syntax.Member | syntax.OneOf)]
        kept = {v for v, a in view.vertices.items() if all(holds(one, a, clusters) for one in (*of_vertices, *others))}
        new: list[tuple[set[Any], dict[str, Any]]] = []
        for members in view.components(kept):
            values = {str(one.left): view.measure(one.left, members) for one in measures}
            good = len(members) >= job.arguments.get("min_size", 2)
            good &= any(holds(job.predicates("contains"), view.vertices[v], clusters) for v in members)
            if good and all(compares(values[str(one.left)], one.operator, one.right.value) for one in measures):
                new.append((members, values))
        new.sort(key=lambda one: min(map(order, one[0])))
        pairs = sorted(
            (-len(old & members), id, at) for id, old in job.clusters.items() for at, (members, _) in enumerate(new)
            if old & members
        )  # fmt: skip
        ids: dict[int, int] = {}
        for _, id, at in pairs:
            if id not in ids.values() and at not in ids:
                ids[at] = id
        best_old: dict[int, int] = {}
        into: dict[int, int] = {}
        for _, id, at in pairs:
            best_old.setdefault(at, id)
            into.setdefault(id, at)
        before, job.clusters = job.clusters, {}
        shown = bool(job.arguments.get("members"))
        inherited = set(ids)
        for at, (members, values) in enumerate(new):
            if at not in ids:
                job.count += 1
                ids[at] = job.count
            id = ids[at]
            job.clusters[id], job.values[id] = members, values
            all_values = {"members": members} | values
            if at not in inherited:
                if at in best_old:
                    all_values = {"parent": best_old[at]} | all_values
                status = "SPLIT" if at in best_old else "CREATED"
                yield Event(time, job.topic, status, id, all_values, vertices=frozenset(members))
                continue
            grow = job.arguments.get("grow")
            if grow is not None and len(before[id]) < grow <= len(members):
                yield Event(time, job.topic, "GROWN", id, {"size": len(members)}, vertices=frozenset(members))
            for status, changed in (("JOINED", members - before[id]), ("PARTED", before[id] - members)):
                if shown and changed:
                    yield Event(time, job.topic, status, id, {"vertices": changed}, vertices=frozenset(members))
        for id in before.keys() - job.clusters.keys():
            if id in into:
                target = ids[into[id]]
                merged = {"into": target, "members": job.clusters[target]}
                job.merged.add(id)
                yield Event(time, job.topic, "MERGED", id, merged, vertices=frozenset(before[id]))
            else:
                job.last[id] = before[id]
                yield Event(time, job.topic, "DISAPPEARED", id, {}, vertices=frozenset(before[id]))

    def follow_evolved(self, job: Job, view: View, clusters: Any, time: float) -> Iterator[Event]:
        topic = (self.gone | self.jobs)[str(job.query.arguments[0])]
        for id in topic.clusters.keys() - job.followed.keys():
            if id not in topic.merged:
                job.followed[id] = (False, None)
        for id, (held, since) in list(job.followed.items()):
            live = id in topic.clusters
            if not live:  # what is removed does not count again
                topic.last[id] = topic.last.get(id, set()) & self.graph.vertices.keys()
            members = topic.clusters[id] if live else topic.last[id]
            if not live and since is None:
                since = time  # noqa: PLW2901
            if id in topic.merged or not members or (since is not None and time > since + TRACK_S):
                job.followed[id] = (True, since)  # never again
                continue
            measures = job.measures()
            values = {str(one.left): view.measure(one.left, members) for one in measures}
            true = all(compares(values[str(one.left)], one.operator, one.right.value) for one in measures)
            if true and not held:
                yield Event(time, job.topic, "EVOLVED", id, {"members": members} | values, vertices=frozenset(members))
            # After the first event of one that is no longer live, nothing more is published.
            job.followed[id] = (true or (held and not live), since)

    # Publication.

    @staticmethod
    def horizon(job: Job) -> float:
        spans = [
            one.within for one in job.query.where if isinstance(one, syntax.Temporal) and one.relation == "PREDATES"
        ]
        return max((HORIZON_S if one is None else one.micros / 1e6 for one in spans), default=math.inf)

    def filtered(self, job: Job, event: Event) -> None:
        """Publish an event if its constraints hold, or hold it until they do."""
        wanted = [one for one in job.query.where if isinstance(one, syntax.Comparison) and str(one.left) == "status"]
        temporal = [one for one in job.query.where if isinstance(one, syntax.Temporal)]
        good = all((event.status == one.right.value) == (one.operator == "=") for one in wanted)  # type: ignore[union-attr]
        if not temporal:
            if good:
                self.publish(job, event)
            return
        if RANKS[event.status] not in (2, 3):
            held = [one for one in job.held if one.key == event.key]
            job.held = [one for one in job.held if one.key != event.key]
            if not held and event.key in job.shown:
                if RANKS[event.status] < 2:
                    job.shown.discard(event.key)
                if good:
                    self.publish(job, event)
            return
        if all(self.succeeds(job, event, one) for one in temporal if one.relation == "SUCCEEDS"):
            later = [one for one in temporal if one.relation == "PREDATES"]
            if later and not all(self.follows(job, event, one) for one in later):
                job.held.append(event)
            else:
                job.shown.add(event.key)
                if good:
                    self.publish(job, event)

    def succeeds(self, job: Job, event: Event, constraint: syntax.Temporal) -> bool:
        related = [one for one in self.related(job, event, constraint) if one.t < event.t]
        within = math.inf if constraint.within is None else constraint.within.micros / 1e6
        return len([one for one in related if event.t - one.t <= within]) >= constraint.count

    def related(self, job: Job, event: Event, constraint: syntax.Temporal) -> list[Event]:
        """Return the events of a topic that count for a constraint."""
        assert isinstance(constraint.of, syntax.Topic)
        topic = constraint.of.name
        statuses = set(constraint.of.statuses) or PRESENT
        found = [one for one in (self.gone | self.jobs)[topic].history if one.status in statuses]
        if job.query.pattern == "Evolved" and str(job.query.arguments[0]) == topic:
            found = [one for one in found if one.key == event.key]
        if job.query.pattern == "Reach":
            sides = [at for at, side in enumerate(("source", "sink")) if topic_of(job.predicates(side)) == topic]
            if sides:
                found = [one for one in found if one.key in [event.key[at] for at in sides]]
        if constraint.shares:
            found = [one for one in found if one.vertices & event.vertices]
        return found

    def publish(self, job: Job, event: Event) -> None:
        self.events.append(event)
        job.history.append(event)
        for other in self.jobs.values():
            for held in list(other.held):
                constraints = [one for one in other.query.where if isinstance(one, syntax.Temporal)]
                due = all(self.follows(other, held, one) for one in constraints if one.relation == "PREDATES")
                if due and held in other.held:  # others that were published with it can have released it
                    other.held.remove(held)
                    other.shown.add(held.key)
                    self.publish(other, held._replace(released=event.released))

    def follows(self, job: Job, event: Event, constraint: syntax.Temporal) -> bool:
        within = HORIZON_S if constraint.within is None else constraint.within.micros / 1e6
        later = [one for one in self.related(job, event, constraint) if event.t < one.t <= event.t + within]
        return len(later) >= constraint.count


def topic_of(predicates: syntax.Predicates) -> str | None:
    return next((one.topic for one in predicates.parts if isinstance(one, syntax.Member)), None)


def centrality(view: View, arguments: dict[str, Any]) -> dict[Any, dict[str, Any]]:
    if arguments["measure"] == "degree":
        scores: dict[Any, float] = dict.fromkeys(view.vertices, 0)
        for a, b, _ in view.edges.values():
            scores[a] += 1
            scores[b] += 1
    else:
        graph: Any = nx.DiGraph()
        graph.add_nodes_from(view.vertices)
        graph.add_edges_from((a, b) for a, b, _ in view.edges.values())
        scores = nx.pagerank(graph, 0.85, max_iter=1000, tol=1e-15) if len(graph) else {}
    ranked = sorted(scores, key=lambda v: (-round(scores[v], 9), order(v)))[: arguments["top"]]
    return {v: {"rank": at, "score": scores[v]} for at, v in enumerate(ranked, 1)}


def motifs(query: syntax.Query, view: View, clusters: Any) -> set[Any]:
    """Return the keys of all matches: vertices and edges in order of appearance, the least of those that are alike."""
    paths = [one for one in query.arguments if isinstance(one, syntax.Path)]
    comparisons = [one for one in query.arguments if isinstance(one, syntax.Comparison)]
    names: list[str] = []
    parts: dict[str, list[Any]] = defaultdict(list)
    edges: list[tuple[str, str, syntax.Edge]] = []
    for path in paths:
        ends = []
        for at, node in enumerate(path.nodes):
            name = node.variable or f" {len(names)}.{at}"
            ends.append(name)
            if name not in names:
                names.append(name)
            if node.predicates is not None:
                parts[name].append(node.predicates)
        edges += zip(ends, ends[1:], path.edges, strict=False)
    found = set()
    text = ", ".join(map(str, query.arguments))
    if text not in AUTOMORPHISMS:
        AUTOMORPHISMS[text] = automorphisms(names, parts, edges, comparisons)
    alike = AUTOMORPHISMS[text]
    for vertices in bindings(names, parts, edges, view, clusters):
        for chosen in edge_bindings(edges, vertices, view, clusters):
            bound = {n: view.vertices[v] for n, v in vertices.items()}
            bound |= {e[2].variable: view.edges[id][2] for e, id in zip(edges, chosen, strict=True) if e[2].variable}
            if all(compared(one, bound) for one in comparisons):
                keys = [
                    (*(vertices[n] for n in renamed), tuple(chosen[at] for at in places)) for renamed, places in alike
                ]  # fmt: skip
                found.add(min(keys, key=order))
    return found


def compared(one: syntax.Comparison, bound: dict[str, dict[str, Any]]) -> bool:
    left = bound[one.left.names[0]].get(one.left.names[1])  # type: ignore[union-attr]
    right = one.right
    other = bound[right.names[0]].get(right.names[1]) if isinstance(right, syntax.Reference) else right.value  # type: ignore[union-attr]
    return compares(left, one.operator, other)


def bindings(names: list[str], parts: Any, edges: Any, view: View, clusters: Any) -> Iterator[dict[str, Any]]:
    fitting = {
        n: [v for v, a in view.vertices.items() if all(holds(one, a, clusters) for one in parts[n])] for n in names
    }
    linked = {frozenset((a, b)) for a, b, _ in view.edges.values()}

    def extend(bound: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if len(bound) == len(names):
            yield dict(bound)
            return
        name = names[len(bound)]
        for vertex in fitting[name]:
            if vertex not in bound.values():
                bound[name] = vertex
                known = [e for e in edges if name in e[:2] and e[0] in bound and e[1] in bound]
                if all(frozenset((bound[a], bound[b])) in linked for a, b, _ in known):
                    yield from extend(bound)
                del bound[name]

    yield from extend({})


def edge_bindings(edges: Any, vertices: dict[str, Any], view: View, clusters: Any) -> Iterator[tuple[Any, ...]]:
    fitting = []
    for a, b, edge in edges:
        ends = vertices[a], vertices[b]
        accepted = {">": [ends], "<": [ends[::-1]], "-": [ends, ends[::-1]]}[edge.direction]
        fitting.append([
            id for id, (x, y, attributes) in view.edges.items()
            if (x, y) in accepted and (edge.predicates is None or holds(edge.predicates, attributes, clusters))
        ])  # fmt: skip
    for chosen in itertools.product(*fitting):
        if len(set(chosen)) == len(chosen):
            yield chosen


def automorphisms(names: list[str], parts: Any, edges: Any, comparisons: Any) -> list[tuple[list[str], list[int]]]:
    """Return renamings of the variables, and of the edges, under which the pattern is the same."""
    found = []

    def shape(a: str, b: str, edge: syntax.Edge) -> Any:
        direction, ends = edge.direction, (a, b)
        if direction == "<":
            direction, ends = ">", (b, a)
        return direction, ends if direction == ">" else frozenset(ends), str(edge.predicates)

    for renamed in itertools.permutations(names):
        to = dict(zip(names, renamed, strict=True))
        if any(sorted(map(str, parts[n])) != sorted(map(str, parts[to[n]])) for n in names):
            continue
        for places in itertools.permutations(range(len(edges))):
            good = all(
                shape(to[a], to[b], edge) == shape(*edges[places[at]]) for at, (a, b, edge) in enumerate(edges)
            )  # fmt: skip
            if not good:
                continue
            of_edges = {e[2].variable: edges[places[at]][2].variable for at, e in enumerate(edges) if e[2].variable}
            swapped = {renamed_comparison(one, to | of_edges) for one in comparisons}
            if swapped == {renamed_comparison(one, {}) for one in comparisons}:
                found.append((list(renamed), list(places)))
    return found


def renamed_comparison(one: syntax.Comparison, to: dict[str, Any]) -> Any:
    def side(value: Any) -> Any:
        if isinstance(value, syntax.Reference):
            return (to.get(value.names[0], value.names[0]), *value.names[1:])
        return str(value)

    sides = side(one.left), side(one.right)
    return (one.operator, frozenset(sides) if one.operator in ("=", "!=") else sides)

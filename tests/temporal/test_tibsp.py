"""The outer loop: who is called when, what arrives where, what is allowed, and when it ends.

See docs/specs/time-series.md, section 7.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from goffish.errors import InputError, JobError
from goffish.gofs import build_layout
from goffish.gopher import SubgraphProgram, per_subgraph, per_vertex, run_program
from goffish.temporal.program import PATTERNS, TimeSeriesProgram, check_series_program
from goffish.temporal.timeline import Timeline
from tests.cases import grid, grid_blocks
from tests.temporal.arrays import ArrayValues, run_series, told

LAYOUT = build_layout(grid(6, 4), grid_blocks(6, 4, 2, 2), 4)
VALUES = ArrayValues(LAYOUT, np.arange(6) * 10, {"vertex.x": lambda v, t: v + 100 * t})


class Probe(TimeSeriesProgram):
    """Sends in every call, and tells of every message when it was sent and when it arrived."""

    message = {"timestep": np.int64, "superstep": np.int64}
    emits: ClassVar[Any] = dict.fromkeys(("superstep", "at", "number", "phase"), np.int64)
    emits_vertices = False

    def __init__(self, pattern: Any) -> None:
        self.pattern = pattern

    def _tell(self, step: Any, phase: int) -> None:
        if step.messages.size:
            step.emit(
                superstep=step.number, phase=phase, at=step.messages["timestep"], number=step.messages["superstep"]
            )

    def compute(self, sg: Any, step: Any) -> None:
        self._tell(step, 0)
        stamp = {"timestep": step.timestep, "superstep": step.number}
        if step.number < 3:
            step.send_to_neighbors(**stamp)
        if self.pattern == "sequential":
            step.send_to_next_timestep(**stamp)
            if step.number == 1:
                step.send_to_subgraph_in_next_timestep((sg.id + 1) % 4, **stamp)
        if self.pattern == "eventual" and step.number == 1:
            step.send_to_merge(**stamp)
        step.vote_to_halt()

    def end_of_timestep(self, sg: Any, step: Any) -> None:
        if self.pattern == "sequential":
            step.send_to_next_timestep(timestep=step.timestep, superstep=-7)

    def merge(self, sg: Any, step: Any) -> None:
        self._tell(step, 1)
        step.vote_to_halt()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_messages_arrive_when_they_should(pattern: str) -> None:
    found = run_series(Probe(pattern), VALUES)
    assert told(found, "supersteps") == [3] * 5
    merged = 0
    for row in found.table.to_pylist():
        if row["phase"] == 1:
            assert row["superstep"] == 1
            merged += 1
        elif row["at"] == row["timestep"]:
            assert row["number"] == row["superstep"] - 1
        else:
            assert (row["at"], row["superstep"]) == (row["timestep"] - 1, 1)
            assert pattern == "sequential"
    assert merged == (20 if pattern == "eventual" else 0)
    if pattern == "eventual":
        for sub in range(4):
            times = [row["at"] for row in found.table.to_pylist() if row["phase"] == 1][sub * 5 : sub * 5 + 5]
            assert times == [0, 1, 2, 3, 4]
    if pattern == "sequential":
        assert found.stats is not None
        # Each of 4 subgraphs sent 3 to itself, 1 to another one and 1 from the end of the last timestep.
        assert found.stats.aggregates["dropped"] == 4 * 5
        ends = [row for row in found.table.to_pylist() if row["number"] == -7]
        assert len(ends) == 4 * 4


@pytest.mark.parametrize("pattern", ["independent", "eventual"])
def test_order_of_timesteps_does_not_matter(pattern: str) -> None:
    rows = [sorted(map(repr, run_series(Probe(pattern), VALUES, order).table.to_pylist()))
            for order in (range(5), [4, 2, 0, 1, 3])]  # fmt: skip
    assert rows[0] == rows[1]


class Calls(TimeSeriesProgram):
    """Does one thing in one phase."""

    message = {"x": np.int64}
    values = ("vertex.x",)

    def __init__(self, pattern: Any, phase: str, call: str) -> None:
        self.pattern, self.phase, self.call = pattern, phase, call

    def _do(self, sg: Any, step: Any, phase: str) -> None:
        if phase in {"compute", "merge"}:
            step.vote_to_halt()
        if phase != self.phase or step.number > 1:
            return
        {
            "send": lambda: step.send_to_neighbors(x=1),
            "halt": step.vote_to_halt,
            "later": lambda: step.send_to_next_timestep(x=1),
            "later, other": lambda: step.send_to_subgraph_in_next_timestep(0, x=1),
            "later, vertex": lambda: step.send_to_vertex_in_next_timestep(0, 0, x=1),
            "merge": lambda: step.send_to_merge(x=1),
            "halt timestep": step.vote_to_halt_timestep,
            "halt all": step.halt_application,
            "read": lambda: sg.attribute("vertex.x"),
        }[self.call]()

    def compute(self, sg: Any, step: Any) -> None:
        self._do(sg, step, "compute")

    def end_of_timestep(self, sg: Any, step: Any) -> None:
        self._do(sg, step, "end of timestep")

    def merge(self, sg: Any, step: Any) -> None:
        self._do(sg, step, "merge")


#: §3.4: for compute in the three patterns, for the end of a timestep in the three patterns, and for the merge.
ALLOWED = {
    "send": "yyy nnn y", "halt": "yyy nnn y", "later": "nny nny n", "later, other": "nny nny n",
    "later, vertex": "nny nny n", "merge": "nyn nyn n", "halt timestep": "nny nny n", "halt all": "nny nny n",
    "read": "yyy yyy n",
}  # fmt: skip


@pytest.mark.parametrize("call", ALLOWED)
def test_what_is_allowed_where(call: str) -> None:
    table = ALLOWED[call].split()
    for phase, answers in zip(("compute", "end of timestep", "merge"), table, strict=True):
        for pattern, answer in zip(("eventual",) if phase == "merge" else PATTERNS, answers, strict=True):
            program = Calls(pattern, phase, call)
            if answer == "y":
                run_series(program, VALUES)
                continue
            when = "" if phase == "merge" else "timestep 0, "
            with pytest.raises(JobError, match=rf"^Calls: subgraph (.), partition \1, {when}{phase}") as told_:
                run_series(program, VALUES)
            if call != "read":
                assert f"{pattern} pattern" in str(told_.value) or "its BSP is over" in str(told_.value)


class Stopper(TimeSeriesProgram):
    """Ends the run in one of the ways."""

    message = {"x": np.int64}
    state = {"ends": per_subgraph(np.int64)}
    rows = "subgraph"

    def __init__(self, how: str, at: int) -> None:
        self.how, self.at = how, at

    def compute(self, sg: Any, step: Any) -> None:
        if self.how == "any" and sg.id == 2 and step.timestep == self.at:
            step.halt_application()
        if self.how in ("all", "pending") and step.timestep >= self.at:
            step.vote_to_halt_timestep()
        if self.how == "one dissents" and sg.id != 3:
            step.vote_to_halt_timestep()
        step.vote_to_halt()

    def end_of_timestep(self, sg: Any, step: Any) -> None:
        sg["ends"] += 1
        if self.how == "pending" and step.timestep == self.at and sg.id == 1:
            step.send_to_next_timestep(x=1)

    def result(self, sg: Any) -> Any:
        return {"ends": sg["ends"]}


@pytest.mark.parametrize(
    ("how", "at", "timesteps"), [("any", 2, 3), ("all", 1, 2), ("pending", 1, 3), ("one dissents", 0, 5), ("any", 4, 5)]
)
def test_how_a_run_ends(how: str, at: int, timesteps: int) -> None:
    found = run_series(Stopper(how, at), VALUES)
    assert told(found, "supersteps") == [1] * timesteps
    assert found.table["ends"].to_pylist() == [timesteps] * 4


class Spread(TimeSeriesProgram):
    """A running maximum that is remembered in state, or sent to the next timestep."""

    message = {"x": np.int64, "vertex_index": np.int64}
    state = {"most": per_vertex(np.int64, -1)}
    values = ("vertex.x",)

    def __init__(self, by_messages: bool) -> None:
        self.by_messages = by_messages

    def compute(self, sg: Any, step: Any) -> None:
        if step.number == 1:
            if self.by_messages:
                sg["most"] = -1
                sg["most"][step.messages["vertex_index"]] = step.messages["x"]
            sg["most"] = np.maximum(sg["most"] * 3 % 1000, sg.attribute("vertex.x"))
        step.vote_to_halt()

    def end_of_timestep(self, sg: Any, step: Any) -> None:
        if self.by_messages:
            step.send_to_subgraph_in_next_timestep(
                np.full(sg.num_vertices, sg.id), x=sg["most"], vertex_index=np.arange(sg.num_vertices)
            )

    def result(self, sg: Any) -> Any:
        return {"most": sg["most"]}


@pytest.mark.slow
def test_state_that_stays_messages_and_checkpoints_are_the_same(tmp_path: Any) -> None:
    kept = run_series(Spread(by_messages=False), VALUES).table
    exact = np.full(24, -1)
    for t in range(5):
        exact = np.maximum(exact * 3 % 1000, np.arange(24) + 100 * t)
    assert kept["most"].to_pylist() == exact.tolist()
    for by_messages in (False, True):
        assert run_series(Spread(by_messages), VALUES).table.equals(kept)
        for stop in range(1, 10):
            limited = {"checkpoint_dir": tmp_path / f"{by_messages}{stop}", "checkpoint_every": 1}
            with pytest.raises(JobError, match="not finished"):
                run_series(Spread(by_messages), VALUES, max_supersteps=stop, **limited)
            assert run_series(Spread(by_messages), VALUES, resume=True, **limited).table.equals(kept)


class Fresh(TimeSeriesProgram):
    """Counts its calls; with independent timesteps it never gets beyond the first."""

    pattern = "independent"
    state = {"calls": per_subgraph(np.int64)}
    emits: ClassVar[Any] = {"calls": np.int64}
    emits_vertices = False

    def compute(self, sg: Any, step: Any) -> None:
        sg["calls"] += 1
        step.vote_to_halt()

    def end_of_timestep(self, sg: Any, step: Any) -> None:
        step.emit(calls=sg["calls"])


def test_independent_timesteps_remember_nothing() -> None:
    assert run_series(Fresh(), VALUES).table["calls"].to_pylist() == [1] * 20


class Given(TimeSeriesProgram):
    """Tells what it is given."""

    message = {"x": np.int64}
    emits: ClassVar[Any] = {"x": np.int64}
    emits_vertices = False

    def __init__(self, pattern: Any) -> None:
        self.pattern = pattern

    def compute(self, sg: Any, step: Any) -> None:
        if step.messages.size:
            step.emit(x=step.messages["x"])
        step.vote_to_halt()


@pytest.mark.parametrize(("pattern", "timesteps"), [("sequential", [0]), ("independent", [0, 1, 2, 3, 4])])
def test_input_of_the_application(pattern: str, timesteps: list[int]) -> None:
    found = run_series(Given(pattern), VALUES, given={"x": 42}).table
    assert found["x"].to_pylist() == [42] * 4 * len(timesteps)
    assert sorted(set(found["timestep"].to_pylist())) == timesteps


class Once(SubgraphProgram):
    """The plain BSP of `Twin`."""

    message = {"x": np.int64}
    state = {"least": per_subgraph(np.int64, 99)}
    rows = "subgraph"

    def compute(self, sg: Any, step: Any) -> None:
        least = min(int(step.messages["x"].min()) if step.messages.size else 99, sg.id)
        if least < sg["least"][0]:
            sg["least"] = least
            step.send_to_neighbors(x=least)
        step.vote_to_halt()

    def result(self, sg: Any) -> Any:
        return {"least": sg["least"]}


class Twin(TimeSeriesProgram):
    message, state, rows = Once.message, Once.state, "subgraph"
    compute, result = Once.compute, Once.result


def test_one_instance_is_the_plain_bsp() -> None:
    plain = run_program(Once(), LAYOUT)
    timed = run_series(Twin(), VALUES, [0])
    assert timed.table.equals(plain.table)
    assert plain.stats is not None
    assert told(timed, "supersteps") == [plain.stats.supersteps]


def test_a_failure_says_where_and_when() -> None:
    class Fails(Twin):
        def compute(self, sg: Any, step: Any) -> None:
            if step.timestep == 1 and sg.id == 2:
                raise ValueError("two")
            step.vote_to_halt()

    with pytest.raises(
        JobError, match=r"^Fails: subgraph 2, partition 2, timestep 1, compute, superstep 1: ValueError: two$"
    ):
        run_series(Fails(), VALUES)


def test_wrong_declarations() -> None:
    class Both(TimeSeriesProgram, SubgraphProgram):
        pass

    wrong = Twin()
    wrong.pattern = "often"  # type: ignore[assignment]
    for program, text in (
        (wrong, "choose one of independent"),
        (Both(), "derive from TimeSeriesProgram alone"),
        (3, "expected an instance"),
    ):
        with pytest.raises(InputError, match=text):
            check_series_program(program)  # type: ignore[arg-type]
    assert isinstance(Timeline(Twin(), VALUES, []), SubgraphProgram)


def test_no_timesteps_at_all() -> None:
    assert run_series(Twin(), VALUES, []).table["least"].to_pylist() == [99] * 4

"""State that goes over to a new version in another form: each key once, whatever fails when."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goffish as gf
from goffish.errors import InputError
from goffish.streaming.batches import Batch
from goffish.streaming.operators import make_instance
from goffish.streaming.runtime.cluster import Cluster
from goffish.streaming.updates.migration import migrated
from goffish.streaming.updates.plan import plan_update
from goffish.streaming.updates.versions import PartialWindow, Strategy
from tests.streaming.runtime import simulation
from tests.streaming.runtime.test_cluster import make_events
from tests.streaming.updates.gated import Gated
from tests.streaming.updates.test_embedded import rows, until
from tests.streaming.updates.test_live import RECORDS as LIVE
from tests.streaming.updates.test_live import finish, poll_until, source, update
from tests.streaming.updates.test_rollouts import few, many, quick_seeds, written

FILES, RECORDS, USERS = 4, 300, 40


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[int]]:
    """Files of events, and the number of events of each user."""
    folder = tmp_path_factory.mktemp("events")
    rng = random.Random(7)
    expected: Counter[int] = Counter()
    for number in range(FILES):
        lines = []
        for i in range(RECORDS):
            user, at = rng.randrange(USERS), i / 10 + rng.random() * 2
            expected[user] += 1
            lines.append(json.dumps({"at": at, "user": user}) + "\n")
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return folder, expected


def into_object(total: int) -> dict[str, int]:
    """Fails for a total that was migrated before."""
    return {"n": total + 0, "migrated": 1}


class Old:
    """Keeps a count of records, and a timer."""

    def on_value(self, key: int, value: Any, state: Any, timers: Any, emit: Any) -> None:
        state["n"] = state.get("n", 0) + value["n"]
        timers.set(1e6)
        emit({"user": key, "n": state["n"]})

    def on_timer(self, key: int, time: float, state: Any, timers: Any, emit: Any) -> None:
        raise AssertionError


class New:
    """Keeps the count under another name."""

    def on_value(self, key: int, value: Any, state: Any, timers: Any, emit: Any) -> None:
        assert "n" not in state
        state["count"] = state.get("count", 0) + value["n"]
        timers.set(1e6)
        emit({"user": key, "n": state["count"]})

    def on_timer(self, key: int, time: float, state: Any, timers: Any, emit: Any) -> None:
        emit({"user": key, "n": state["count"], "timer": True})


def rename(state: dict[str, int]) -> dict[str, int]:
    """Fails for a state that was migrated before."""
    return {"count": state["n"]}


def flow(source: Path, target: Path, version: int, strict: bool) -> gf.stream.Flow:
    """Return a flow whose second version keeps other totals, of records that only it can add."""
    made = gf.stream.Flow("test")
    read = made.source(gf.stream.read_json_lines(str(source)), time="at", lateness="2s")
    tagged = read.map(lambda row: row | {"version": version, "n": 1}, name="tag").key_by("user")

    def add(total: int, row: dict[str, Any]) -> int:
        assert row["version"] == 1 or not strict
        return total + row["n"]

    def add_to_object(total: dict[str, int], row: dict[str, Any]) -> dict[str, int]:
        assert row["version"] == 2 or not strict
        return total | {"n": total["n"] + row["n"]}

    if version == 1:
        direct = tagged.reduce(add, initial=0, name="direct")
        late = tagged.window(gf.stream.tumbling("2s")).aggregate(n="count", name="windows").key_by("user")
        second = late.process(Old, name="second")
        direct.map(lambda row: {"user": row["user"], "n": row["value"]}, name="shown").sink(
            gf.stream.write_json_lines(target / "direct")
        )
    else:
        direct = tagged.reduce(add_to_object, initial={"n": 0, "migrated": 0}, name="direct", migrate=into_object)
        late = tagged.window(gf.stream.tumbling("2s")).aggregate(n="count", name="windows").key_by("user")
        second = late.process(New, name="second", migrate=rename)
        direct.map(lambda row: {"user": row["user"], **row["value"]}, name="shown").sink(
            gf.stream.write_json_lines(target / "direct")
        )
    second.sink(gf.stream.write_json_lines(target / "second"))
    return made


def check(folder: Path, expected: Counter[int], strict: bool) -> Counter[str]:
    """Check the totals of all users; return how many rows each version wrote.

    With hti, the new version may get all records of a user: those that the old one had processed are replayed.
    """
    counts: Counter[str] = Counter()
    last: dict[int, int] = {}
    for row in written(folder / "direct"):
        last[row["user"]] = max(last.get(row["user"], 0), row["n"])
        counts["new" if "migrated" in row else "old"] += 1
        assert row.get("migrated", 1) == 1 or not strict
    assert last == expected
    timers = [row for row in written(folder / "second") if "timer" in row]
    assert {row["user"]: row["n"] for row in timers} == expected
    assert len(timers) == len(expected)
    return counts


@pytest.mark.parametrize(
    "event", ["kill early", *(pytest.param(one, marks=pytest.mark.slow) for one in ("", "kill", "scale out"))]
)
@pytest.mark.parametrize(
    "strategy",
    [Strategy.MVC, Strategy.PVC, *(pytest.param(one, marks=pytest.mark.slow) for one in (Strategy.NCH, Strategy.HTI))],
)
@pytest.mark.parametrize("seeds", [few, many])
@pytest.mark.slow
def test_each_key_once(events: Any, tmp_path: Path, seeds: range | None, strategy: Strategy, event: str) -> None:
    source, expected = events
    counts: Counter[str] = Counter()
    for seed in seeds or quick_seeds(strategy, event):
        target = tmp_path / str(seed)
        strict = strategy != Strategy.HTI
        cluster = simulation.Cluster(flow(source, target, 1, strict), 3, replication=1 + seed % 2, seed=seed, limit=4)
        cluster.run(0.2 + 0.6 * cluster.random.random())
        cluster.update(flow(source, target, 2, strict), strategy)
        if event:
            cluster.run(cluster.now + (0.05 if event == "kill early" else 0.4) * cluster.random.random())
        if event.startswith("kill"):
            cluster.kill(cluster.random.randrange(3))
        elif event == "scale out":
            cluster.add(9)
            cluster.run(cluster.now + 0.1)
            cluster.workers[cluster.random.randrange(3)].node.give(9, cluster.now)
        cluster.finish()
        assert cluster.rollout is not None and cluster.rollout.state == "complete"
        counts.update(check(target, expected, strict))
        for worker in cluster.alive:
            assert {"direct@1", "second@1"} < worker._keyed.keys() and len(worker._keyed) == 3
    assert counts["old"] > 0 and counts["new"] > 0


def test_one_migration_after_another(events: Any, tmp_path: Path) -> None:
    """Breaks when a second update takes the state of the first version, or migrates that of the second again."""
    source, expected = events

    def flows(version: int) -> gf.stream.Flow:
        made = gf.stream.Flow("test")
        read = made.source(gf.stream.read_json_lines(str(source))).key_by("user")
        initial, migrate = {
            1: (0, None), 2: ({"n": 0, "migrated": 0}, into_object), 3: ([0, 0], lambda total: [total["n"], version])
        }[version]  # fmt: skip

        def add(total: Any, row: Any) -> Any:
            if version == 1:
                return total + 1
            return total | {"n": total["n"] + 1} if version == 2 else [total[0] + 1, total[1]]

        total = read.reduce(add, initial=initial, name="total", migrate=migrate)
        total.sink(gf.stream.write_json_lines(tmp_path / "out"))
        return made

    cluster = simulation.Cluster(flows(1), 3, seed=5, limit=1)
    cluster.run(0.3)
    for version in (2, 3):
        cluster.update(flows(version), Strategy.MVC)
        while not cluster.rollout.ending:  # type: ignore[union-attr]
            cluster.run(cluster.now + 0.01)
        cluster.run(cluster.now + 0.1)
    cluster.finish()
    found: dict[int, int] = {}
    kinds = Counter()  # type: ignore[var-annotated]
    for row in written(tmp_path / "out"):
        n = row["value"]["n"] if isinstance(row["value"], dict) else row["value"]
        found[row["user"]] = max(found.get(row["user"], 0), n[0] if isinstance(n, list) else n)
        kinds[type(row["value"])] += 1
    assert found == expected
    assert kinds.keys() == {int, dict, list}
    assert {name for worker in cluster.alive for name in worker._keyed} == {"total@2"}


def test_ncl_migrates_what_it_keeps(events: Any, tmp_path: Path) -> None:
    source, expected = events
    cluster = simulation.Cluster(flow(source, tmp_path, 1, True), 3, seed=3, limit=6)
    cluster.run(0.5)
    cluster.update(flow(source, tmp_path, 2, True), Strategy.NCL)
    cluster.finish()
    last: dict[int, int] = {}
    for row in written(tmp_path / "direct"):
        last[row["user"]] = max(last.get(row["user"], 0), row["n"])
        assert row.get("migrated", 1) == 1
    lost = sum(worker.lost for worker in cluster.workers.values())
    assert sum(expected.values()) - lost <= sum(last.values()) < sum(expected.values())
    assert all(last[user] <= count for user, count in expected.items())


COUNT, FREE = 4000, 1250


def totals(folder: Path, old: bool, **migrate: Callable[[Any], Any]) -> gf.stream.Flow:
    """Return a flow that keeps sums, or sums with counts, in four ways."""
    made = gf.stream.Flow("totals")
    read = made.source(
        Gated(gf.stream.read_json_lines(str(folder / "in.jsonl")), FREE, str(folder / "updated")),
        time="at",
        name="read",
    ).key_by("key")
    window = read.window(gf.stream.tumbling("10s"))
    if old:
        reduced = read.reduce(lambda total, row: total + row["n"], initial=0, name="reduced")
        numbers = read.aggregate(n=("sum", "n"), name="numbers")
        logic = read.process(Old, name="logic")
        windows = window.reduce(lambda total, row: total + row["n"], initial=0, name="windows")
    else:
        given = {"reduced": pair, "numbers": with_mean, "logic": rename, "windows": pair} | migrate
        reduced = read.reduce(add_pair, initial=(0, 0), name="reduced", migrate=given["reduced"])
        results = {"n": ("sum", "n"), "mean": ("mean", "n"), "most": ("max", "n")}
        numbers = read.aggregate(name="numbers", migrate=given["numbers"], **results)  # type: ignore[arg-type]
        logic = read.process(New, name="logic", migrate=given["logic"])
        windows = window.reduce(add_pair, initial=(0, 0), name="windows", migrate=given["windows"])
    for stream in (reduced, numbers, logic, windows):
        stream.sink(gf.stream.write_json_lines(folder / stream.operator))
    return made


def add_pair(total: tuple[int, int], row: dict[str, Any]) -> tuple[int, int]:
    return total[0] + row["n"], total[1] + 1


def pair(total: int) -> tuple[int, int]:
    """Return the sum and the count: every record is 1."""
    return total + 0, total


def with_mean(old: dict[str, Any]) -> dict[str, Any]:
    return {"n": old["n"], "mean": (old["n"], old["n"]), "most": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [json.dumps({"at": i / 100, "key": i % 3, "n": 1}) + "\n" for i in range(COUNT)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    return tmp_path


def last(folder: Path, key: str = "key") -> dict[int, dict[str, Any]]:
    return {row[key]: row for row in rows(folder)}


def check_totals(folder: Path) -> None:
    expected = {key: len(range(key, COUNT, 3)) for key in range(3)}
    assert {key: row["value"] for key, row in last(folder / "reduced").items()} == {
        key: [count, count] for key, count in expected.items()
    }
    assert {key: (row["n"], row["mean"], row["most"]) for key, row in last(folder / "numbers").items()} == {
        key: (count, 1.0, 1) for key, count in expected.items()
    }
    timers = [row for row in rows(folder / "logic") if "timer" in row]
    assert {row["user"]: row["n"] for row in timers} == expected and len(timers) == 3


def test_one_process(folder: Path) -> None:
    """Breaks when a kind of state is not migrated, or migrated again when the run resumes."""
    run = totals(folder, old=True).start(checkpoint=folder / "saved")
    until(lambda: run.metrics["windows"].received == FREE)
    report = run.update(totals(folder, old=False).check(), partial_windows="merge")
    assert (report.state, report.changes) == ("complete", "changed logic, numbers, reduced, windows")
    run.stop()
    (folder / "updated").touch()
    with pytest.raises(InputError, match="another flow"):
        totals(folder, old=True).run(checkpoint=folder / "saved")
    totals(folder, old=False).run(checkpoint=folder / "saved")
    check_totals(folder)
    assert len(rows(folder / "windows")) == 12  # the window in the middle went on
    sizes = [row["value"] if isinstance(row["value"], list) else [row["value"]] * 2 for row in rows(folder / "windows")]
    assert sum(one for one, _ in sizes) == COUNT and all(one == other for one, other in sizes)
    assert sum(isinstance(row["value"], int) for row in rows(folder / "windows")) == 3


def broken(value: Any) -> Any:
    raise KeyError("model")


@pytest.mark.parametrize(
    ("operator", "migrate", "error"),
    [
        ("reduced", broken, r"operator reduced: migrate: key 0: KeyError: 'model'"),
        ("reduced", str, r"operator reduced: migrate: key 0: returned '417': .* initial, which is of type tuple"),
        ("reduced", lambda total: (total, lambda: 1), r"operator reduced: migrate: key 0: .*pickle"),
        (
            "numbers",
            lambda old: old,
            r"operator numbers: migrate: key 0: returned .*: return a mapping with n, mean, m",
        ),
        ("numbers", lambda old: with_mean(old) | {"mean": 1.0}, r"key 0: returned mean = 1.0: a mean is a pair of sum"),
        ("numbers", lambda old: with_mean(old) | {"n": 1 << 63}, r"key 0: returned n = .*: return a number of 64 bits"),
        ("logic", lambda old: None, r"operator logic: migrate: key 0: returned None: return a mapping of what state"),
    ],
)
def test_a_migration_that_fails(folder: Path, operator: str, migrate: Callable[[Any], Any], error: str) -> None:
    """The update is aborted, the flow goes on as it was, and can be updated."""
    run = totals(folder, old=True).start(checkpoint=folder / "saved")
    until(lambda: run.metrics["windows"].received == FREE)
    report = run.update(totals(folder, False, **{operator: migrate}).check(), partial_windows="merge")
    assert report.state == "aborted"
    assert "\n" not in report.reason
    assert re.search(error, report.reason), report.reason
    assert run.update(totals(folder, old=False).check(), partial_windows="merge").state == "complete"
    (folder / "updated").touch()
    run.wait()
    check_totals(folder)


def counting(version: int, migrate: Callable[[Any], Any] | None) -> gf.stream.Flow:
    made = gf.stream.Flow("counting")
    read = made.source(gf.stream.generate(rate=100))
    initial = 0 if version == 1 else (0, 0)
    read.key_by(lambda n: n % 2).reduce(
        lambda total, n: (version, total), initial=initial, name="total", migrate=migrate
    ).sink(gf.stream.call(len))
    return made


def test_what_is_refused() -> None:
    """Each message names the operator and what to give."""
    old, new = counting(1, None).check(), counting(2, pair).check()
    assert plan_update(1, old, new).migrated == {"total"}
    assert plan_update(1, old, new).to_dict()["migrates"] == ["total"]
    with pytest.raises(
        InputError, match=r"operator total: its state does not fit .* type of initial .* give migrate, a fu"
    ):
        plan_update(1, old, counting(2, None).check())
    with pytest.raises(InputError, match=r"operator total: migrate is missing: .* the running version has it"):
        plan_update(2, new, counting(2, None).check())
    other = counting(2, pair)
    assert plan_update(2, counting(3, pair).check(), other.check()).migrated == set()  # has this form already
    moved = gf.stream.Flow("counting")
    moved.source(gf.stream.generate(rate=100)).key_by(lambda n: n % 3).reduce(
        lambda total, n: total, initial=(0, 0), name="total", migrate=pair
    ).sink(gf.stream.call(len))
    with pytest.raises(
        InputError, match=r"operator total: its state does not fit .* \(kind, key.*\); give the new ope"
    ):
        plan_update(1, old, moved.check())


def test_what_the_flow_refuses() -> None:
    keyed = gf.stream.Flow("refused").source(gf.stream.generate(3), time=lambda n: n).key_by(lambda n: n)
    with pytest.raises(InputError, match="operator sessions: migrate: sessions keep their records; leave it out"):
        keyed.window(gf.stream.session("5s")).reduce(max, initial=0, name="sessions", migrate=pair)
    keyed.reduce(max, initial=0, name="total", migrate=lambda: 0).sink(gf.stream.collect())
    with pytest.raises(InputError, match=r"operator total: migrate: <lambda>\(\): must accept 1 argument \(value\)"):
        keyed._stream.flow.check()
    other = gf.stream.Flow("refused")
    numbers = other.source(gf.stream.generate(3)).key_by(lambda n: n)
    numbers.aggregate(migrate="sum", name="sums", n="count").sink(gf.stream.collect())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="operator sums: migrate: str is not callable"):
        other.check()


def test_entries_of_another_kind() -> None:
    """The total of a reduce becomes what process keeps, and aggregates."""
    kinds = gf.stream.Flow("kinds")
    read = kinds.source(gf.stream.generate(3)).key_by(lambda n: n)
    read.reduce(lambda total, n: total, initial=0, name="reduced").sink(gf.stream.collect())
    read.process(New, name="logic", migrate=lambda n: {"count": n}).sink(gf.stream.collect())
    read.aggregate(name="numbers", n="count", least="min", migrate=lambda n: {"n": n, "least": 0.5}).sink(
        gf.stream.collect()
    )
    reduced, logic, numbers = (make_instance(kinds.check().operator(name)) for name in ("reduced", "logic", "numbers"))
    reduced.process(0, Batch([1, 2]))
    reduced.state.values = {1: 10, 2: 20}  # type: ignore[union-attr]
    for new in (logic, numbers):
        assert new.state is not None and reduced.state is not None
        new.state.add(migrated(reduced.operator, new.operator, reduced.state.extract()))
    assert logic.state.entries == {1: {(0, "count"): 10}, 2: {(0, "count"): 20}}  # type: ignore[union-attr]
    (row,) = numbers.process(0, Batch([2]))[0].rows()
    assert row == {"key": 2, "n": 21, "least": 0.5}


def live(folder: Path, version: int) -> gf.stream.Flow:
    """Return a flow that counts the records of each user behind a count in windows."""
    made = gf.stream.Flow("live")
    read = made.source(source(folder), time="at", lateness="2s", name="source").key_by("user")
    counts = read.window(gf.stream.tumbling("5s")).aggregate(n="count", name="windows").key_by("user")
    if version == 1:
        total = counts.reduce(lambda total, row: total + row["n"], initial=0, name="total")
    else:
        total = counts.reduce(
            lambda total, row: total | {"n": total["n"] + row["n"]},
            initial={"n": 0, "migrated": 0}, name="total", migrate=into_object,
        )  # fmt: skip
    total.sink(gf.stream.write_json_lines(folder / "out"))
    return made


def check_live(folder: Path) -> int:
    """Check the totals; return how many users have one that was migrated."""
    lines = [line for file in (folder / "in").iterdir() for line in file.read_text().splitlines()]
    users = Counter(json.loads(line)["user"] for line in lines)
    best: dict[str, dict[str, int]] = {}
    for row in written(folder / "out"):
        value = row["value"] if isinstance(row["value"], dict) else {"n": row["value"]}
        if value["n"] >= best.get(row["user"], value)["n"]:
            best[row["user"]] = value
    assert {user: value["n"] for user, value in best.items()} == users
    return sum(value.get("migrated", 0) for value in best.values())


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
def test_workers(tmp_path: Path, kill: bool) -> None:
    make_events(tmp_path / "in", LIVE)
    cluster = Cluster(live(tmp_path, 1).check(), 2, checkpoint_s=0.2)
    try:
        poll_until(cluster, lambda: len({row["user"] for row in written(tmp_path / "out")}) == 30)
        update(cluster, tmp_path, live(tmp_path, 2), kill=kill)
        finish(cluster)
        (report,) = cluster.updates
    finally:
        cluster.close()
    assert (report.state, report.lost, report.mixes, cluster.failures) == ("complete", 0, False, kill)
    assert check_live(tmp_path) == 30


def run_and_update(folder: Path) -> None:
    """Run and update the flow; the process is killed meanwhile."""
    cluster = Cluster(live(folder, 1).check(), 2, checkpoint_s=0.1, checkpoint=folder / "saved")
    update(cluster, folder, live(folder, 2))
    finish(cluster)


def finished(folder: Path, version: int, workers: int) -> list[str]:
    """Resume the flow, and run it to its end; return how its updates ended."""
    cluster = Cluster(live(folder, version).check(), workers, checkpoint_s=0.1, checkpoint=folder / "saved")
    try:
        finish(cluster)
        return [report.state for report in cluster.updates]
    finally:
        cluster.close()


def test_windows_on_workers_are_refused(tmp_path: Path) -> None:
    """Records that wait could belong to windows that another worker has ended."""
    lines = [json.dumps({"at": i, "key": i, "n": 1}) + "\n" for i in range(3)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    cluster = Cluster(totals(tmp_path, old=True).check(), 2)
    try:
        with pytest.raises(InputError, match=r"operator windows: migrate: .* one worker; choose emit or drop"):
            cluster.update(totals(tmp_path, old=False).check(), Strategy.HTI, PartialWindow.MERGE)
        plan = cluster.plan(totals(tmp_path, old=False).check(), Strategy.HTI, PartialWindow.EMIT)
    finally:
        cluster.close()
    assert plan.migrated == {"reduced", "numbers", "logic"}
    assert plan.to_dict()["ends_windows"] == ["windows"]


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_all_processes_are_killed(tmp_path: Path, seed: int, version: int) -> None:
    """The run that resumes, with either version, completes the update; later ones need the new version."""
    make_events(tmp_path / "in", LIVE)
    names = "from pathlib import Path; from tests.streaming.updates.test_migration import run_and_update; "
    code = f"{names} run_and_update(Path({str(tmp_path)!r}))"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    kept = tmp_path / "saved" / "workers" / "update"
    while not kept.exists():
        assert process.poll() is None
        time.sleep(0.002)
    time.sleep(0.05 * seed)  # at another moment of the update
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    was_kept = kept.exists()
    (tmp_path / "over").touch()
    if not was_kept and version == 1:
        with pytest.raises(InputError, match="operator total: migrate is missing"):
            finished(tmp_path, 1, 3)
        version = 2
    assert finished(tmp_path, version, 3) == (["complete"] if was_kept else [])
    assert check_live(tmp_path) == 30
    if kept.exists():  # the flow ended before all workers had saved once more, and the next run completes the update
        assert finished(tmp_path, 1, 2) == ["complete"]
    else:
        with pytest.raises(
            InputError, match=r"operator total: migrate is missing: .* the version of the checkpoint has it"
        ):
            finished(tmp_path, 1, 2)
    finished(tmp_path, 2, 2)
    assert check_live(tmp_path) == 30


@pytest.mark.slow
def test_a_new_version_resumes(tmp_path: Path) -> None:
    """A run that was stopped continues with the new version, which migrates the checkpoints of all workers once."""
    make_events(tmp_path / "in", LIVE)
    cluster = Cluster(live(tmp_path, 1).check(), 2, checkpoint_s=0.1, checkpoint=tmp_path / "saved")
    try:
        poll_until(cluster, lambda: bool(list((tmp_path / "out").glob("part-*"))))
    finally:
        cluster.close()
    for name in ("begun", "over"):
        (tmp_path / name).touch()
    assert finished(tmp_path, 2, 3) == []
    assert check_live(tmp_path) > 0  # as many users as the checkpoints had
    finished(tmp_path, 2, 2)


def test_a_new_version_resumes_in_one_process(folder: Path) -> None:
    def counts(version: int) -> gf.stream.Flow:
        made = gf.stream.Flow("counts")
        lines = gf.stream.read_json_lines(str(folder / "in.jsonl"))
        read = made.source(Gated(lines, FREE, str(folder / "updated")), name="read").key_by("key")
        if version == 1:
            read.process(Old, name="logic").sink(gf.stream.write_json_lines(folder / "logic"))
        else:
            read.process(New, name="logic", migrate=rename).sink(gf.stream.write_json_lines(folder / "logic"))
        return made

    for version in (1, 2, 2):  # the second run migrates, and the third does not
        run = counts(version).start(checkpoint=folder / "saved")
        until(lambda: run.metrics["logic"].received == FREE)  # noqa: B023
        run.stop()
    with pytest.raises(InputError, match="operator logic: migrate is missing"):
        counts(1).run(checkpoint=folder / "saved")
    (folder / "updated").touch()
    counts(2).run(checkpoint=folder / "saved")
    assert {row["user"]: row["n"] for row in rows(folder / "logic")} == {0: 1334, 1: 1333, 2: 1333}

"""Updates of a flow on several hosts: nothing is lost or mixed, and a host without the new version aborts them."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from goffish.errors import InputError
from goffish.streaming.flow_file import load_flow
from goffish.streaming.hosts.versions import load_file, plan_from_json, plan_to_json
from goffish.streaming.updates.plan import plan_update
from goffish.streaming.updates.rollout import Progress, Rollout, RolloutState
from goffish.streaming.updates.versions import PartialWindow, Strategy
from goffish.v1 import hosts_pb2
from tests.commands import Ended, call
from tests.streaming.runtime.conftest import Start
from tests.streaming.runtime.hosts import Started, kill, wait_for
from tests.streaming.runtime.test_hosts import metrics_of, run_flow
from tests.streaming.updates.test_rollouts import mixed, total, written

RECORDS = 1200
#: A flow whose results name the versions of two operators that their records went through.
FLOW = """
import goffish as gf
from tests.streaming.updates.gated import Gated

VERSION, FOLDER = {version}, {folder!r}

def tag(row):
    return row | {{"a1": int(VERSION == 1), "a2": int(VERSION == 2)}}

def group(row):
    count = row["a1"] + row["a2"]
    return row | {{"group": row["user"] % 3, "b1": count * (VERSION == 1), "b2": count * (VERSION == 2)}}

flow = gf.stream.Flow("versions")
read = gf.stream.read_json_lines(FOLDER + "/in", rate=3000)
gated = Gated(Gated(read, {records} // 2, FOLDER + "/begun"), {records} - 100, FOLDER + "/over")
tagged = flow.source(gated, time="at", lateness="2s", name="source").map(tag, name="first")
sums = tagged.key_by("user").window(gf.stream.tumbling("5s")).aggregate(
    a1=("sum", "a1"), a2=("sum", "a2"), name="sums"
)
names = ("a1", "a2", "b1", "b2")
groups = sums.map(group, name="second").key_by("group").window(gf.stream.tumbling("10s")).aggregate(
    name="groups", **{{name: ("sum", name) for name in names}}
)
groups.sink(gf.stream.write_json_lines(FOLDER + "/out"))
"""


def make_events(folder: Path) -> Counter[tuple[int, int]]:
    """Write files of events, and return the number of events of each group in ten seconds."""
    rng, expected = random.Random(5), Counter[tuple[int, int]]()
    folder.mkdir()
    for number in range(3):
        lines = []
        for i in range(RECORDS):
            user, at = rng.randrange(30), i / 20 + rng.random()
            expected[user % 3, int(at // 10 * 10)] += 1
            lines.append(json.dumps({"at": at, "user": user}) + "\n")
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return expected


def write_version(file: Path, folder: Path, version: int, more: str = "") -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(FLOW.format(version=version, folder=str(folder), records=RECORDS) + more)
    return file


class Run:
    """A controller and two agents with one slot, each with a folder of files, which have read half of the records."""

    def __init__(self, start: Start, folder: Path, workers: str = "2", more: str = "") -> None:
        self._start, self._folder, self._more = start, folder, more
        self.expected = make_events(folder / "in")
        self.files = [folder / name for name in ("controller", "one", "two")]
        flows = [write_version(one / "flow.py", folder, 1) for one in self.files]
        self.controller, self.address = run_flow(start, flows[0], workers, "--lease", "4s")
        self.agents = [self.join(one) for one in flows[1:]]
        read = 3 * (RECORDS // 2)
        wait_for(lambda: self.ask("top", "--json").get("records", 0) >= read)

    def join(self, flow: Path) -> Started:
        return self._start("worker", str(flow), "--join", self.address, "--slots", "1")

    def ask(self, command: str, *arguments: str) -> dict[str, Any]:
        ended = call("stream", command, str(self.controller.process.pid), *arguments)
        found: dict[str, Any] = json.loads(ended.out) if ended.out.startswith("{") else {"error": ended.err}
        return found

    def update(self, strategy: str = "mvc") -> Ended:
        """Update the flow to ``new.py``."""
        new = write_version(self.files[0] / "new.py", self._folder, 2, self._more)
        return call("stream", "update", str(self.controller.process.pid), new, "--strategy", strategy, "--json")

    def copy(self, *folders: Path) -> None:
        """Give hosts the new version."""
        for folder in folders:
            write_version(folder / "new.py", self._folder, 2, self._more)

    def let_read(self, name: str) -> None:
        """Let sources read on: some more for ``begun``, the rest for ``over``."""
        (self._folder / name).touch()

    def finish(self) -> Counter[str]:
        """Check the results, and return how many are of which version."""
        self.let_read("begun")
        self.let_read("over")
        assert self.controller.wait() == 0, self.controller.output
        rows = written(self._folder / "out")
        assert total(rows) == self.expected
        assert not any(mixed(row) for row in rows)
        return Counter({"old": sum(row["a1"] for row in rows), "new": sum(row["a2"] for row in rows)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "workers", "scaled", "sink"),
    [("mvc", "2", "3", ""), pytest.param("nch", "second=1", "second=2", "more", marks=pytest.mark.slow)],
)
def test_an_update(start: Start, tmp_path: Path, strategy: str, workers: str, scaled: str, sink: str) -> None:
    """Breaks when hosts mix versions, or one that joins later begins with the version before."""
    added = f"\ngroups.sink(gf.stream.write_json_lines(FOLDER + '/more'), name={sink!r})\n" if sink else ""
    run = Run(start, tmp_path, workers, added)
    run.copy(*run.files[1:])
    run.let_read("begun")
    ended = run.update(strategy)
    report = json.loads(ended.out)
    assert (report["state"], report["lost"]) == ("complete", 0)
    assert report["changes"] == "changed first, groups, second, sums" + (f"; added {sink}" if sink else "")
    late = tmp_path / "three"
    run.copy(late)
    agent = run.join(write_version(late / "flow.py", tmp_path, 1))
    agent.printed("joined ")
    assert "error" not in run.ask("scale", scaled, "--json")
    assert len(agent.workers) == 1
    versions = run.finish()
    assert versions["old"] > 0 and versions["new"] > 0
    assert len(metrics_of(run.controller)["workers"]) == 3  # type: ignore[arg-type]
    if sink:
        rows = written(tmp_path / sink)
        assert sum(row["a2"] for row in rows) == versions["new"] and not any(row["a1"] for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("agent", [False, True])
def test_a_worker_that_is_killed_during_an_update(start: Start, tmp_path: Path, agent: bool) -> None:
    """Breaks when a failure makes records of both versions meet, or the worker that replaces it is of the old one."""
    run = Run(start, tmp_path)
    run.copy(*run.files[1:])
    (worker,) = run.agents[1].workers
    with ThreadPoolExecutor(1) as thread:
        updating = thread.submit(run.update)
        run.agents[1].printed("prepared ")
        if agent:
            kill(run.agents[1].process.pid)
        kill(worker)
        run.let_read("begun")
        ended = updating.result()
    assert json.loads(ended.out)["state"] == "complete"
    wait_for(lambda: [one["joined"] for one in run.ask("top", "--json")["workers"]] == [True, True])
    versions = run.finish()
    assert versions["old"] > 0 and versions["new"] > 0


@pytest.mark.slow
def test_hosts_without_the_new_version(start: Start, tmp_path: Path) -> None:
    """Breaks when an update goes on without a host that lacks it, or the error does not say which one and why."""
    run = Run(start, tmp_path)
    address = run.agents[1].printed("listening on ")
    run.copy(run.files[1])
    file = run.files[2] / "new.py"
    write_version(run.files[1] / "other.py", tmp_path, 1)
    assert_aborted(run.update(), f"{address}: {file}: no such file; copy it from the machine that runs the flow")
    write_version(file, tmp_path, 3)
    assert_aborted(
        run.update(), f"{address}: {file}: differs from the file of the machine that runs the flow; copy it from there"
    )
    run.copy(run.files[2])
    run.let_read("begun")
    assert json.loads(run.update().out)["state"] == "complete"
    late = write_version(tmp_path / "late" / "flow.py", tmp_path, 1)
    agent = run.join(late)
    assert agent.wait(60) == 2
    missing = late.parent / "new.py"
    assert agent.output.endswith(f"error: {missing}: no such file; copy it from the machine that runs the flow\n")
    assert run.finish()["new"] > 0


def assert_aborted(ended: Ended, reason: str) -> None:
    assert ended.code == 1
    assert json.loads(ended.out)["state"] == "aborted"
    assert ended.err == f"error: versions: the update was aborted, and the flow goes on: {reason}\n"


@pytest.mark.parametrize("name", ["../flow.py", "/flow.py", "..", ".", "", "a\\b.py", "x:y.py", "b/new.py", "\0.py"])
def test_names_of_files(tmp_path: Path, name: str) -> None:
    """Breaks when another host can make an agent run a file of another folder."""
    (tmp_path / "flow.py").touch()
    folder = tmp_path / "versions"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "new.py").touch()
    digest = hashlib.sha256(b"").digest()
    with pytest.raises(InputError, match="must be the name of a file, without folders"):
        load_file(hosts_pb2.FlowFile(name=name, digest=digest), folder, ())


def test_plans(tmp_path: Path) -> None:
    """Breaks when a host goes on with a plan that its versions of the flow do not lead to."""
    one, two, three = (
        load_flow(str(write_version(tmp_path / f"v{n}.py", tmp_path, n, more))).check()
        for n, more in ((1, ""), (2, ""), (1, "\ngroups.sink(gf.stream.write_json_lines(FOLDER + '/more'))\n"))
    )
    plan = plan_update(7, one, two, Strategy.PVC, PartialWindow.DROP)
    assert plan_from_json(plan_to_json(plan), one, two, tmp_path / "v2.py") == plan
    with pytest.raises(InputError, match=r"v3\.py: has another effect than on the machine that runs the flow"):
        plan_from_json(plan_to_json(plan), one, three, tmp_path / "v3.py")


def test_hosts_that_have_no_workers(tmp_path: Path) -> None:
    """Breaks when a version is activated before a host that may get workers has it, or although it has failed."""
    one, two = (load_flow(str(write_version(tmp_path / f"w{n}.py", tmp_path, n))).check() for n in (1, 2))
    plan = plan_update(7, one, two)
    workers = {0: Progress(7)}
    states = []
    rollout = Rollout(plan, 0.0)
    for now, other in ((1.0, Progress(0)), (2.0, Progress(7))):
        rollout.advance(workers, [0], now, [Progress(7), other])
        states.append(rollout.state)
    assert states == [RolloutState.DEPLOYING, RolloutState.DRAINING]
    rollout = Rollout(plan, 0.0)
    rollout.advance(workers, [0], 1.0, [Progress(7), Progress(0, failed="10.0.0.2:7071: no such file")])
    assert (rollout.state, rollout.reason) == (RolloutState.ABORTED, "10.0.0.2:7071: no such file")

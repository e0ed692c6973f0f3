"""The jobs of a database: nothing twice, nothing lost, and no step that a job cannot take. On SQLite and PostgreSQL."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from goffish.errors import InputError
from goffish.services.store import store
from goffish.services.store.database import open_database
from goffish.services.store.records import OVER, Job, LostJob, State, job_of
from goffish.services.store.spec import JobSpec
from goffish.services.store.store import Jobs, UnknownJob
from tests.services.store.databases import new_file

#: Every step that a job can take, written down once more.
STEPS = {
    "queued": "planned failed cancelled",
    "planned": "provisioning queued failed cancelled",
    "provisioning": "running migrating queued failed cancelled",
    "running": "migrating queued done failed cancelled",
    "migrating": "provisioning running checkpointed queued failed cancelled",
    "checkpointed": "provisioning running queued failed cancelled",
    "done": "", "failed": "", "cancelled": "",
}  # fmt: skip


def spec(algorithm: str = "pagerank", **labels: str) -> JobSpec:
    return JobSpec.model_validate({"graph": {"algorithm": algorithm, "input_uri": "g.txt"}, "labels": labels})


@pytest.fixture
def jobs(url: str) -> Iterator[Jobs]:
    engine = open_database(url)
    yield Jobs(engine, "here")
    engine.dispose()


def test_a_client_that_asks_again_gets_the_same_job(jobs: Jobs) -> None:
    """Breaks when a submission that is repeated, also by many at once, makes a second job."""
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda _: jobs.submit(spec(), "ann", "k"), range(24)))
    assert len({job.id for job, _ in found}) == 1
    assert sum(not known for _, known in found) == 1
    assert len(jobs.events(found[0][0].id)) == 1
    other, known = jobs.submit(spec(), "bob", "k")
    assert not known and other.id != found[0][0].id
    with pytest.raises(InputError, match=f"'k' was used for a different job, {other.id}"):
        jobs.submit(spec("bfs"), "bob", "k")


def test_a_job_is_begun_by_one_only(jobs: Jobs) -> None:
    """Breaks when two claims give the same job, or the order is not that of submission."""
    made = [jobs.submit(spec(), "ann")[0].id for _ in range(30)]
    first = jobs.claim(3)
    assert [job.id for job in first] == made[:3]
    with ThreadPoolExecutor(8) as pool:
        found = [job.id for claimed in pool.map(lambda _: jobs.claim(2), range(20)) for job in claimed]
    assert sorted(found) == sorted(made[3:])
    assert {job.attempts for job in jobs.unfinished()} == {1}


def test_another_server_leaves_the_jobs_alone(url: str, jobs: Jobs) -> None:
    """Breaks when a server works at jobs whose files it does not have."""
    job, _ = jobs.submit(spec(), "ann")
    engine = open_database(url)
    there = Jobs(engine, "there")
    assert there.claim(5) == [] and there.get(job.id) == job
    jobs.claim()
    assert there.unfinished() == [] and [one.id for one in jobs.unfinished()] == [job.id]
    engine.dispose()


def test_an_old_attempt_says_nothing_any_more(jobs: Jobs) -> None:
    """Breaks when a worker that was given up can still end its job."""
    jobs.submit(spec(), "ann")
    [old] = jobs.claim()
    jobs.move(old, State.QUEUED, "worker lost")
    [new] = jobs.claim()
    assert new.attempts == 2
    for call in (lambda: jobs.move(old, State.FAILED, "x"), lambda: jobs.note(old, "progress", progress=3)):
        with pytest.raises(LostJob):
            call()
    for state in (State.PROVISIONING, State.RUNNING):
        jobs.move(new, state)
    done = jobs.move(new, State.DONE, "ready", summary={"rows": 3})
    assert done.over and done.summary == {"rows": 3} and done.ended is not None
    with pytest.raises(LostJob):
        jobs.move(done, State.QUEUED)


def test_every_step_of_a_job_is_an_event(jobs: Jobs) -> None:
    """Breaks when a step is taken that is not in the plan, one that is in it is refused, or one leaves no event."""
    rng = random.Random(7)
    heard: list[str] = []
    jobs.heard = heard.append
    for _ in range(12):
        job, _ = jobs.submit(spec(), "ann")
        told = 1
        while not job.over:
            after = State(rng.choice(list(STEPS)))
            if job.state == "queued" and after == "planned":
                [job] = jobs.claim()
                told += 1
            elif after in STEPS[job.state].split():
                job = jobs.move(job, after, "on")
                told += 1
            else:
                with pytest.raises(LostJob):
                    jobs.move(job, after)
        events = jobs.events(job.id)
        assert [event.number for event in events] == list(range(1, told + 1)) and job.events == told
        assert events[-1].state == job.state and job.state in OVER
        assert heard.count(job.id) == told


def test_cancelling(jobs: Jobs) -> None:
    """Breaks when a job that waits is still begun, or one that is over changes."""
    waits, runs = (jobs.submit(spec(), "ann")[0] for _ in range(2))
    assert jobs.cancel(waits.id, "ann").state == State.CANCELLED
    [runs] = jobs.claim()
    asked = jobs.cancel(runs.id, "root")
    assert asked.cancel_requested and asked.state == State.PLANNED
    assert jobs.cancel(runs.id, "root").events == asked.events
    assert jobs.move(asked, State.CANCELLED, "stopped").over
    assert jobs.cancel(waits.id, "ann").state == State.CANCELLED and jobs.claim() == []
    with pytest.raises(UnknownJob, match="job 'nothing' does not exist"):
        jobs.cancel("nothing", "ann")


def test_finding_jobs(jobs: Jobs) -> None:
    """Breaks when a filter lets others through, or pages leave out or repeat jobs."""
    rng = random.Random(3)
    for at in range(60):
        labels = {name: rng.choice("xy") for name in ("team", "kind") if rng.random() < 0.7}
        jobs.submit(spec(rng.choice(["pagerank", "bfs"]), **labels), rng.choice(["ann", "bob"]))
        if at % 3 == 0:
            jobs.cancel(next(jobs.find(limit=1)).id, "ann")
    everything = list(jobs.find(limit=1000))
    assert [job.number for job in everything] == sorted((job.number for job in everything), reverse=True)
    assert jobs.counts()[State.CANCELLED] == 20 and jobs.counts()[State.QUEUED] == 40
    assert sum(jobs.counts("ann").values()) == sum(job.client == "ann" for job in everything)
    for labels in ({}, {"team": "x"}, {"team": "y", "kind": "x"}):
        for client in ("", "bob"):
            for what in ("", "bfs"):
                for states in ((), (State.QUEUED,), (State.QUEUED, State.CANCELLED)):
                    expected = [
                        job.id for job in everything
                        if labels.items() <= job.spec.labels.items() and client in ("", job.client)
                        and what in ("", job.spec.what) and (not states or job.state in states)
                    ]  # fmt: skip
                    found, before = [], None
                    while page := list(
                        jobs.find(states=states, labels=labels, what=what, client=client, before=before, limit=7)
                    ):
                        found += [job.id for job in page]
                        before = page[-1].number
                    assert found == expected


def test_lists_are_read_a_few_jobs_at_a_time(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a list holds all jobs of a page in memory, whatever a client has put into them."""
    for _ in range(5):
        jobs.submit(spec(), "ann")
    made: list[str] = []

    def counted(row: Any) -> Job:
        made.append("")
        return job_of(row)

    monkeypatch.setattr(store, "job_of", counted)
    with closing(jobs.find()) as found:
        next(found)
        assert len(made) == 1
    assert len(list(jobs.find())) == 5


def test_forgetting_old_jobs(jobs: Jobs) -> None:
    """Breaks when a job that is not over, or not for long enough, is forgotten, or leaves anything behind."""
    ended, waits, late = (jobs.submit(spec(team="a"), "ann", key)[0] for key in "abc")
    jobs.cancel(ended.id, "ann")
    moment = jobs.get(ended.id).ended
    assert moment is not None
    jobs.cancel(late.id, "ann")
    assert jobs.over_since(moment, 10) == []
    assert [job.id for job in jobs.over_since(moment + 1e-6, 10)] == [ended.id]
    jobs.forget(jobs.get(ended.id))
    jobs.forget(waits)
    assert {job.id for job in jobs.find(labels={"team": "a"})} == {waits.id, late.id}
    with pytest.raises(UnknownJob):
        jobs.events(ended.id)
    again, known = jobs.submit(spec(), "ann", "a")
    assert not known and again.id != ended.id


def test_jobs_that_wait_too_long(jobs: Jobs, url: str) -> None:
    """Breaks when a job that waits is not over by its deadline, or one that must not be ended is."""
    limits = {"soon": 0.05, "later": 100.0, "begun": 0.05, "never": None, "elsewhere": 0.05}
    made = {}
    for name, limit in limits.items():
        body = spec().model_dump() | {"deadline_s": limit}
        at = Jobs(open_database(url), "there") if name == "elsewhere" else jobs
        made[name] = at.submit(JobSpec.model_validate(body), "ann")[0]
        if name == "begun":
            jobs.claim(3)
            for back in (one for one in jobs.unfinished() if one.id != made["begun"].id):
                jobs.move(back, State.QUEUED)
    time.sleep(0.1)
    assert [one.id for one in jobs.expire()] == [made["soon"].id] and not jobs.expire()
    assert jobs.get(made["soon"].id).state == State.FAILED
    assert "0.05 s after submission, while queued" in jobs.get(made["soon"].id).error
    states = {name: jobs.get(job.id).state for name, job in made.items()}
    assert {name for name, state in states.items() if state == State.QUEUED} == {"later", "never", "elsewhere"}


def test_clients_take_turns(jobs: Jobs) -> None:
    """Breaks when another client waits behind all jobs of one, or a client's own jobs leave their order."""
    made = {name: [jobs.submit(spec(), name)[0].id for _ in range(count)] for name, count in (("ann", 60), ("bob", 3))}
    first = [job.id for job in jobs.claim(4)]
    assert first == [made["ann"][0], made["bob"][0], made["ann"][1], made["bob"][1]]
    made["cid"] = [jobs.submit(spec(), "cid")[0].id for _ in range(2)]
    then = [jobs.claim()[0].id for _ in range(5)]
    assert then == [made["cid"][0], made["ann"][2], made["bob"][2], made["cid"][1], made["ann"][3]]
    # A job that comes back to the queue takes the turn of its client.
    jobs.move(jobs.get(made["ann"][0]), State.QUEUED)
    made["bob"].append(jobs.submit(spec(), "bob")[0].id)
    assert [job.id for job in jobs.claim(3)] == [made["bob"][3], made["ann"][0], made["ann"][4]]
    assert jobs.waiting() == {"ann": 55}
    assert len(jobs.claim(100)) == 55 and jobs.claim() == []


def test_inputs_in_use(jobs: Jobs) -> None:
    """Breaks when an upload that a job still needs could be forgotten."""
    for uri in ("upload:ab/x", "g.txt", "upload:cd/y"):
        graph = {"algorithm": "bfs", "input_uri": uri}
        jobs.submit(JobSpec.model_validate({"graph": graph}), "ann", uri)
    jobs.submit(JobSpec.model_validate({"dataflow": {"dataflow": "linear-road"}}), "ann")
    jobs.cancel(list(jobs.find())[1].id, "ann")
    tables = {"truth": "upload:ef/t.csv", "refine": "leiden", "initial": "first.parquet"}
    graph = {"algorithm": "louvain", "input_uri": "g.txt", "options": tables}
    jobs.submit(JobSpec.model_validate({"graph": graph}), "ann")
    definition = json.dumps({"operators": [{"read": {"csv": "upload:gh/z.csv"}}, {"read": {"csv": "z.csv"}}]})
    jobs.submit(JobSpec.model_validate({"flow": {"definition": definition}}), "ann")
    jobs.submit(JobSpec.model_validate({"flow": {"flow": "orders"}}), "ann")
    assert jobs.inputs_in_use() == {"upload:ab/x", "upload:ef/t.csv", "upload:gh/z.csv"}


def test_events_in_parts(jobs: Jobs) -> None:
    """Breaks when somebody who goes on to watch misses an event or gets one twice."""
    jobs.submit(spec(), "ann")
    [job] = jobs.claim()
    for at in range(25):
        job = jobs.note(job, "progress", str(at), {"superstep": at}, progress=at)
    assert job.progress == 24
    seen, after = [], 0
    while part := jobs.events(job.id, after, 4):
        seen += part
        after = part[-1].number
    assert [event.number for event in seen] == list(range(1, 28))
    assert [event.details for event in seen[2:]] == [{"superstep": at} for at in range(25)]


def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    """Breaks when a submission fails while another program writes, or hangs for longer than it was told."""
    url = new_file(tmp_path)
    engine = open_database(url, waits_s=0.3)
    impatient, patient = Jobs(engine, "here"), Jobs(open_database(url, waits_s=20.0), "here")
    other = sqlite3.connect(tmp_path / "jobs.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    with pytest.raises(OperationalError, match="locked"):
        impatient.submit(spec(), "ann")
    assert time.monotonic() - begun < 5
    assert list(impatient.find()) == []  # who only reads does not wait
    threading.Timer(0.5, lambda: other.execute("COMMIT")).start()
    job, _ = patient.submit(spec(), "ann")
    assert impatient.get(job.id) == job
    other.close()


_SUBMITS = """
import sys
from goffish.services.store.database import open_database
from goffish.services.store.spec import JobSpec
from goffish.services.store.store import Jobs
jobs = Jobs(open_database(sys.argv[1]), "here")
spec = JobSpec.model_validate({"graph": {"algorithm": "bfs", "input_uri": "g"}})
for at in range(100_000):
    print(jobs.submit(spec, "ann", f"{sys.argv[2]}-{at}")[0].id, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_what_was_accepted_is_there_after_kill_9(url: str, jobs: Jobs) -> None:
    """Breaks when a job that the client was told of is gone, or its event is."""
    rng = random.Random(5)
    for at in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", _SUBMITS, url, str(at)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.3))
            process.send_signal(signal.SIGKILL)
            accepted = [first.strip(), *process.stdout.read().split()]
        # The last line may have been cut off.
        for job in [one for one in accepted if len(one) == 20]:
            assert [event.kind for event in jobs.events(job)] == ["submitted"]

"""Workers of one flow on several hosts: results are those of plain Python, whichever hosts and connections fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from goffish.cli.stream_hosts import access_of
from goffish.errors import InputError
from tests.commands import assert_refused, call
from tests.streaming.runtime.conftest import Start
from tests.streaming.runtime.hosts import TOKEN, Started, kill, wait_for
from tests.streaming.runtime.hosts_network import Network
from tests.streaming.runtime.test_cluster import FLOW, make_events, sums_of


def write_flow(folder: Path, more: str = "", name: str = "groups.py", window: str = "5s") -> Path:
    """Write a flow that reads the folder ``in`` and writes ``out``."""
    file = folder / name
    text = FLOW.format(source=str(folder / "in" / "*.jsonl"), target=str(folder / "out"), more=more)
    file.write_text(text.replace('tumbling("5s")', f'tumbling("{window}")'))
    return file


def run_flow(
    start: Start, flow: Path, workers: int | str, *more: str, listen: str = "127.0.0.1:0"
) -> tuple[Started, str]:
    """Start a controller, and return its address for agents."""
    controller = start(
        "run", str(flow), "--workers", str(workers), "--listen", listen, "--every", "0.2s", "--json", *more
    )
    return controller, controller.printed("agents join at ")


def metrics_of(controller: Started) -> dict[str, object]:
    found: dict[str, object] = json.loads(controller.output[controller.output.index("{") :])
    return found


def in_other_time() -> tuple[str, ...]:
    """Return what runs a command on a host that was started at another time, or skip the test."""
    before = ("unshare", "--time", "--monotonic", "86400", "--boottime", "172800", "--fork", "--kill-child")
    try:
        subprocess.run([*before, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"time namespaces are not permitted ({error})")
    return before


def test_two_agents(start: Start, tmp_path: Path) -> None:
    """Breaks when records are lost or counted twice between hosts, or a process stays."""
    expected = make_events(tmp_path / "in", 3000)
    flow = write_flow(tmp_path)
    controller, address = run_flow(start, flow, 3, "--here", "1")
    agents = [start("worker", str(flow), "--join", address, "--slots", "1") for _ in range(2)]
    assert controller.wait() == 0, controller.output
    metrics = metrics_of(controller)
    assert sums_of(tmp_path / "out") == expected
    assert metrics["stopped"] == "finished" and len(metrics["workers"]) == 3  # type: ignore[arg-type]
    assert [agent.wait(20) for agent in agents] == [0, 0], [agent.output for agent in agents]
    workers = {one["pid"] for one in metrics["workers"]}  # type: ignore[attr-defined]
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 10)


@pytest.mark.slow
def test_an_agent_that_is_killed(start: Start, tmp_path: Path) -> None:
    """Breaks when the loss of a host with its worker loses records, or counts some twice."""
    expected = make_events(tmp_path / "in", 3000)
    flow = write_flow(tmp_path, ", rate=1000")
    controller, address = run_flow(start, flow, 2, "--lease", "2s")
    agents = [start("worker", str(flow), "--join", address, "--slots", "1") for _ in range(2)]
    wait_for(lambda: bool(list((tmp_path / "out").glob("part-*"))))
    workers = agents[1].workers
    assert len(workers) == 1
    for pid in [agents[1].process.pid, *workers]:
        kill(pid)
    assert controller.wait() == 0, controller.output
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_a_host_of_half_of_the_workers_that_is_killed(start: Start, tmp_path: Path) -> None:
    """Breaks when workers of one host follow each other on the ring, so that their copies are lost with it."""
    expected = make_events(tmp_path / "in", 4000)
    flow = write_flow(tmp_path, ", rate=1000")
    controller, address = run_flow(start, flow, 4, "--here", "1", "--lease", "2s")
    start("worker", str(flow), "--join", address, "--slots", "1").printed("listening on ")
    agent = start("worker", str(flow), "--join", address, "--slots", "2")
    wait_for(lambda: bool(list((tmp_path / "out").glob("part-*"))))
    workers = agent.workers
    assert len(workers) == 2
    for pid in [agent.process.pid, *workers]:
        kill(pid)
    assert controller.wait(180) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected
    assert "warning" not in controller.output


@pytest.mark.slow
def test_clocks(start: Start, tmp_path: Path) -> None:
    """Breaks when a time of one host is compared with the clock of another, as in leases and latencies."""
    before = in_other_time()
    expected = make_events(tmp_path / "in", 1500)
    flow = write_flow(tmp_path)
    controller, address = run_flow(start, flow, 2, "--here", "1", "--lease", "2s")
    start("worker", str(flow), "--join", address, "--slots", "1", before=before)
    assert controller.wait() == 0, controller.output
    assert sums_of(tmp_path / "out") == expected
    metrics = metrics_of(controller)
    latencies = [one["latency"] for one in metrics["operators"] if one["latency"]]  # type: ignore[attr-defined]
    assert latencies and all(-1 < one["p50"] <= one["p99"] < 600 for one in latencies)
    assert all(-1 < one["checkpoint_age"] < 600 for one in metrics["workers"])  # type: ignore[attr-defined]


@pytest.mark.slow
def test_agents_that_are_refused(start: Start, tmp_path: Path) -> None:
    """Breaks when an agent with another token or flow is taken in, or the error does not say why."""
    make_events(tmp_path / "in", 10)
    flow, other = write_flow(tmp_path), write_flow(tmp_path, name="other.py", window="7s")
    _, address = run_flow(start, flow, 1)
    agents = [
        start("worker", str(flow), "--join", address, token="another-token-of-many-chars"),
        start("worker", str(other), "--join", address),
    ]
    assert [agent.wait(60) for agent in agents] == [2, 2]
    errors = [agent.output.splitlines()[-1] for agent in agents]
    assert errors == [
        f"error: --join {address}: the token is not accepted",
        f"error: --join {address}: this host has another version of flow groups than the controller; copy the file of "
        "the controller",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_agent_that_ends_while_it_waits(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    """Breaks when a worker is placed on a host whose agent has ended before the flow began."""
    expected = make_events(tmp_path / "in", 300)
    flow = write_flow(tmp_path)
    controller, address = run_flow(start, flow, 2)
    gone = start("worker", str(flow), "--join", address, "--slots", "1")
    gone.printed("connected to ")
    os.kill(gone.process.pid, number)
    gone.wait(10)
    agent = start("worker", str(flow), "--join", address, "--slots", "2")
    assert controller.wait(60) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected
    assert agent.wait(20) == 0, agent.output


@pytest.mark.slow
def test_an_agent_that_is_asked_to_end(start: Start, tmp_path: Path) -> None:
    """Breaks when an agent leaves upon SIGTERM before its worker has handed its state over, of which are no copies."""
    expected = make_events(tmp_path / "in", 1000)
    flow = write_flow(tmp_path, ", rate=200")
    controller, address = run_flow(start, flow, 2, "--here", "1", "--replication", "0")
    agent = start("worker", str(flow), "--join", address, "--slots", "1")
    wait_for(lambda: bool(list((tmp_path / "out").glob("part-*"))))
    agent.process.terminate()
    assert agent.wait(30) == 0, agent.output
    assert agent.output.splitlines()[-1] == f"left {address}"
    assert controller.process.poll() is None, controller.output
    assert controller.wait(60) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_agents_that_are_asked_to_end_one_after_the_other(start: Start, tmp_path: Path) -> None:
    """Breaks when what a worker has sent to other agents is lost as its agent leaves, or its copies are needed."""
    expected = make_events(tmp_path / "in", 6000)
    flow = write_flow(tmp_path, ", rate=600")
    controller, address = run_flow(start, flow, 3, "--replication", "0")
    agents = [start("worker", str(flow), "--join", address, "--slots", "1") for _ in range(3)]
    wait_for(lambda: bool(list((tmp_path / "out").glob("part-*"))))
    for agent in agents[:2]:
        agent.process.terminate()
        assert agent.wait(30) == 0, agent.output
        assert controller.process.poll() is None, controller.output
    assert controller.wait(120) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_a_controller_that_is_killed(start: Start, tmp_path: Path) -> None:
    """Breaks when an agent goes on without the controller, or prints more than why it ends."""
    make_events(tmp_path / "in", 3000)
    flow = write_flow(tmp_path, ", rate=500")
    controller, address = run_flow(start, flow, 2)
    agent = start("worker", str(flow), "--join", address, "--slots", "2")
    own = agent.printed("listening on ")
    wait_for(lambda: bool(list((tmp_path / "out").glob("part-*"))))
    kill(controller.process.pid)
    assert agent.wait(20) == 1, agent.output
    assert agent.output.splitlines() == [
        f"listening on {own}", f"connected to {address}", f"joined {address} as host 1",
        f"error: --join {address}: the connection to the controller is lost",
    ]  # fmt: skip


@pytest.mark.slow
def test_an_agent_that_is_asked_to_end_twice(start: Start, tmp_path: Path) -> None:
    """Breaks when a second SIGTERM does not end an agent and its workers at once, or the flow fails by it."""
    expected = make_events(tmp_path / "in", 1000)
    flow = write_flow(tmp_path, ", rate=400")
    controller, address = run_flow(start, flow, 2, "--here", "1", "--lease", "2s")
    agent = start("worker", str(flow), "--join", address, "--slots", "1")
    wait_for(lambda: bool(list((tmp_path / "out").glob("part-*"))))
    workers = agent.workers
    agent.process.terminate()
    agent.printed("leaving: 1 workers hand their state over", seconds=5)
    agent.process.terminate()
    assert agent.wait(5) == 143, agent.output
    assert agent.output.splitlines()[-1] == "terminated"
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert controller.wait(60) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_a_host_that_gets_a_notice(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when an agent does not leave when the file appears that announces the end of its machine."""
    expected = make_events(tmp_path / "in", 2000)
    flow, notice = write_flow(tmp_path, ", rate=400"), tmp_path / "notice.json"
    controller, address = run_flow(start, flow, 2, "--here", "1", "--replication", "0")
    monkeypatch.setenv("GOFFISH_NOTICE", str(notice))
    agent = start("worker", str(flow), "--join", address, "--slots", "1")
    wait_for(lambda: bool(list((tmp_path / "out").glob("part-*"))))
    notice.write_text("{}")
    assert agent.wait(60) == 0, agent.output
    assert agent.output.splitlines()[-1] == f"left {address}"
    assert controller.wait(60) == 0, controller.output
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_a_flow_that_waits(start: Start, tmp_path: Path) -> None:
    """Breaks when other processes do not see a flow that waits for agents, or cannot stop it."""
    make_events(tmp_path / "in", 10)
    controller, _ = run_flow(start, write_flow(tmp_path), 2)
    pid = controller.process.pid
    wait_for(lambda: f'"pid": {pid}' in call("stream", "list", "--json").out, 20)
    listed = json.loads(call("stream", "list", "--json").out)["flows"]
    assert [(one["flow"], one["workers"], one["records"]) for one in listed if one["pid"] == pid] == [("groups", 0, 0)]
    ended = call("stream", "scale", str(pid), "3")
    assert_refused(ended)
    assert ended.err == "error: flow groups: waits for machines; try again once it runs\n"
    assert call("stream", "stop", str(pid)).out == "groups: stopped\n"
    assert controller.wait(20) == 0, controller.output
    assert metrics_of(controller)["stopped"] == "stopped"


def test_an_output_folder_in_use(tmp_path: Path) -> None:
    """Breaks when agents are asked to join a run that is refused."""
    make_events(tmp_path / "in", 10)
    flow = write_flow(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-0-00000001.jsonl").touch()
    ended = call("stream", "run", flow, "--listen", "127.0.0.1:0", "--token", TOKEN)
    assert_refused(ended)
    assert ended.err.startswith(f"error: {tmp_path / 'out'}: has part-0-00000001.jsonl of another run; ")


@pytest.mark.slow
def test_other_folders(start: Start, tmp_path: Path) -> None:
    """Breaks when a host writes results to another folder than the others, or ends a flow that it tries to join."""
    make_events(tmp_path / "in", 1000)
    flow, other = write_flow(tmp_path, ", follow=True"), write_flow(tmp_path, name="other.py")
    other.write_text(other.read_text().replace(str(tmp_path / "out"), str(tmp_path / "elsewhere")))
    message = f"{tmp_path / 'elsewhere'}: is not the same folder as on the controller; all machines must share it"
    controller, address = run_flow(start, flow, 1)
    for _ in range(2):  # before the flow begins, and then
        agent = start("worker", str(other), "--join", address, "--slots", "1")
        assert agent.wait(60) == 2, agent.output
        assert agent.output.splitlines()[-1] == f"error: {message}"
        start("worker", str(flow), "--join", address, "--slots", "1")
        wait_for(lambda: bool(list((tmp_path / "out").glob("part-*"))))
    assert call("stream", "stop", str(controller.process.pid)).out == "groups: stopped\n"
    assert controller.wait(60) == 0, controller.output


def test_without_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when the error without the packages of the service does not say what to install."""
    monkeypatch.delitem(sys.modules, "goffish.streaming.hosts.access", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)
    needed = "stream --listen and stream worker: grpcio is not installed: pip install 'goffish[service]'"
    with pytest.raises(InputError, match=re.escape(needed)):
        access_of("127.0.0.1:0", TOKEN, None, None, None)


@pytest.mark.parametrize(
    ("arguments", "token", "message"),
    [
        ("--listen 10.0.0.1:7070", TOKEN, "--listen 10.0.0.1:7070: other machines need TLS; give --certificate, --key "
         "and --authority, or use a loopback address such as 127.0.0.1:7070"),
        ("--listen 0.0.0.0:7070", TOKEN, "--listen 0.0.0.0:7070: must be an address at which other machines reach this "
         "one"),
        ("--listen here", TOKEN, "--listen here: must be HOST:PORT"),
        ("--listen 127.0.0.1:0 --key k.pem", TOKEN, "--certificate, --key and --authority: give all three, or none on "
         "a loopback address"),
        ("--listen 127.0.0.1:0", "short", "--token: has 5 characters; at least 16 are required"),
        ("--here 2", TOKEN, "--here: needs --listen"),
        ("--lease 5s", TOKEN, "--lease: needs --listen"),
        ("--listen 127.0.0.1:0 --lease 0.5", TOKEN, "--lease: 0.5 s; must be 1 s to 1 h"),
    ],
)  # fmt: skip
def test_access(tmp_path: Path, arguments: str, token: str, message: str) -> None:
    """Breaks when a flow can be reached from other machines without TLS, or by a token that can be guessed."""
    make_events(tmp_path / "in", 10)
    ended = call("stream", "run", write_flow(tmp_path), *arguments.split(), "--token", token)
    assert_refused(ended)
    assert ended.err == f"error: {message}\n"


def certificates(folder: Path, *hosts: str) -> list[list[str]]:
    """Write certificates of hosts, and return the options of each."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    found = []
    for host in hosts:
        leaf = authority.issue_cert(host)
        for at, part in enumerate(leaf.cert_chain_pems):
            part.write_to_path(folder / f"{host}.pem", append=at > 0)
        leaf.private_key_pem.write_to_path(folder / f"{host}.key")
        found.append([
            "--certificate", str(folder / f"{host}.pem"), "--key", str(folder / f"{host}.key"),
            "--authority", str(folder / "authority.pem"),
        ])  # fmt: skip
    return found


class Hosts:
    """A controller on the first host of a network, and agents with one slot on the others."""

    def __init__(self, start: Start, folder: Path, network: Network, size: int, rate: int, lease: str) -> None:
        addresses = [network.address(host) for host in range(1, size + 1)]
        access = certificates(folder, *addresses)
        flow = write_flow(folder, f", rate={rate}")

        def begin(*arguments: str, token: str = TOKEN) -> Started:
            return start(*arguments, *access[0], token=token, before=network.command(1))

        here = ("--here", "1", "--lease", lease, "--replication", "1")
        self.controller, address = run_flow(begin, flow, size, *here, listen=f"{addresses[0]}:7070")
        self.agents = []
        for host in range(2, size + 1):
            listen = ("--listen", f"{addresses[host - 1]}:7071", "--slots", "1", *access[host - 1])
            agent = start("worker", str(flow), "--join", address, *listen, before=network.command(host))
            agent.printed("joined ") if host == size else agent.printed("listening on ")
            self.agents.append(agent)
        wait_for(lambda: bool(list((folder / "out").glob("part-*"))))


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network(3)
    yield made
    made.close()


@pytest.mark.slow
def test_a_partition_longer_than_the_lease(start: Start, tmp_path: Path, network: Network) -> None:
    """Breaks when a host that is cut off goes on with its keys while others have taken them over."""
    expected = make_events(tmp_path / "in", 8000)
    hosts = Hosts(start, tmp_path, network, 3, rate=600, lease="2s")
    workers = hosts.agents[0].workers
    network.cut(1, 2)
    network.cut(2, 3)
    assert hosts.agents[0].wait(30) == 1
    assert "no answer of the controller for 2 s; the workers were ended" in hosts.agents[0].output
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    network.join(1, 2)
    network.join(2, 3)
    assert hosts.controller.wait(180) == 0, hosts.controller.output
    assert sums_of(tmp_path / "out") == expected
    assert hosts.agents[1].wait(20) == 0


@pytest.mark.slow
def test_a_partition_shorter_than_the_lease(start: Start, tmp_path: Path, network: Network) -> None:
    """Breaks when what is in transit while connections are cut is lost, or a host is given up too early."""
    expected = make_events(tmp_path / "in", 6000)
    hosts = Hosts(start, tmp_path, network, 3, rate=250, lease="20s")
    workers = hosts.agents[0].workers
    for _ in range(2):
        network.cut(2, 3)
        network.cut(1, 2)
        with pytest.raises(AssertionError):
            hosts.agents[0].wait(3)
        network.join(1, 2)
        network.join(2, 3)
        with pytest.raises(AssertionError):
            hosts.agents[0].wait(2)
    assert hosts.agents[0].workers == workers
    assert hosts.controller.wait(180) == 0, hosts.controller.output
    assert sums_of(tmp_path / "out") == expected


@pytest.mark.slow
def test_a_partition_between_agents(start: Start, tmp_path: Path, network: Network) -> None:
    """Breaks when two hosts that only the controller can reach stop the flow, or both go on."""
    expected = make_events(tmp_path / "in", 8000)
    hosts = Hosts(start, tmp_path, network, 3, rate=600, lease="2s")
    network.cut(2, 3)
    wait_for(lambda: any(agent.process.poll() is not None for agent in hosts.agents), 30)
    codes = [agent.process.poll() for agent in hosts.agents]
    assert codes == [None, 1], [agent.output for agent in hosts.agents]
    assert "the flow goes on without this host: no connection between" in hosts.agents[1].output
    assert hosts.controller.wait(180) == 0, hosts.controller.output
    assert sums_of(tmp_path / "out") == expected

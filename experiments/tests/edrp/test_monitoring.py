"""What the controller plans with: offered rates, rounded delays, an early assignment, a start-up.

See docs/specs/edrp.md, section 3.5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.edrp.evaluation import CONFIGURATIONS, downtimes
from experiments.edrp.generators import network, reference_problem
from experiments.edrp.loop import Planner, control, start_deployment
from experiments.edrp.monitoring import with_coordinates, with_delays
from experiments.latency_aware.springs import LatencySpace, Springs
from goffish.cloud.catalogue import read_catalogue
from goffish.errors import InputError
from goffish.scheduling.dataflow.deployment import Deployment
from goffish.scheduling.dataflow.flow import compile_flow
from goffish.scheduling.dataflow.hosts import HostColumns, host_columns
from goffish.scheduling.dataflow.model import read_dataflow
from goffish.scheduling.policies.edrp.monitoring import early_assignment, offered_rates
from goffish.scheduling.policies.edrp.policy import Edrp
from goffish.scheduling.policies.edrp.problem import Bounds, Problem, problem_of
from goffish.scheduling.policies.observation import Observation
from goffish.scheduling.simulate.run import simulate
from tests.scheduling.policies.edrp.test_program import anchor

from .test_loop import running


def chain(hosts: HostColumns, rate: float = 20.0, **fields: object) -> Problem:
    """Three elements one after the other, the first on host 0 and the last on host 1, where only one fits."""
    elements = [
        {"id": name, "cost": 0.01, "needs": {"hosts": pin, "state_mb": 1.0, "code_mb": 0.1}}
        for name, pin in (("a", ["0"]), ("b", []), ("c", ["1"]))
    ]
    flow = compile_flow(read_dataflow({"elements": elements, "edges": [["a", "b"], ["b", "c"]], "inputs": {"a": rate}}))
    return problem_of(flow, hosts, bounds=Bounds(10.0, 100.0, 100.0), **fields)  # type: ignore[arg-type]


def test_offered_rates() -> None:
    """By hand; breaks when the backlog is forgotten, or counted without being asked for."""
    rates = [[10.0, 0.0], [20.0, 0.0], [60.0, 3.0]]
    assert offered_rates(rates).tolist() == [30.0, 1.0]
    assert offered_rates(rates, [600.0, 60.0], 60.0).tolist() == [40.0, 2.0]
    assert offered_rates(rates, [600.0, 60.0]).tolist() == [30.0, 1.0]
    for wrong, given in (
        (lambda: offered_rates([]), "at least one row"), (lambda: offered_rates(rates, [1.0], 1.0), "2 numbers"),
        (lambda: offered_rates(rates, [1.0, 1.0], 0.0), "drain_s = 0"), (lambda: Edrp(drain_s=0.0), "drain_s = 0"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=given):
            wrong()


def test_rounded_delays() -> None:
    hosts = network(np.zeros((2, 2)))
    assert hosts.latencies_s.max() == 0.0
    given = with_delays(hosts, [[0.3, 3.4], [3.6, 0.0]])
    assert (1e3 * given.latencies_s).tolist() == [[0.0, 3.0], [4.0, 0.0]]
    assert given.to_store is hosts.to_store and given.names == hosts.names and hosts.latencies_s.max() == 0.0
    assert with_delays(hosts, [[0.0, 3.4], [3.6, 0.0]], 0.0).latency_ms[0, 1] == 3.4
    assert with_delays(hosts, [[0.0, 3.4], [3.6, 0.0]], 5.0).latency_ms.tolist() == [[0.0, 5.0], [5.0, 0.0]]
    with pytest.raises(InputError, match="quantum_ms = -1"):
        with_delays(hosts, np.zeros((2, 2)), -1.0)
    with pytest.raises(InputError, match="2 rows of 2"):
        with_delays(hosts, np.zeros((3, 3)))


def test_delays_from_coordinates() -> None:
    """Points of the plane, of which each host measures three in a round: all delays are known to a quantum."""
    rng = np.random.default_rng(3)
    spots = rng.uniform(0, 30, (8, 2))
    true = np.linalg.norm(spots[:, None] - spots[None], axis=2)
    hosts = network(np.zeros((8, 8)))
    space, names = LatencySpace(Springs(nearest=2, random=1)), hosts.names
    for _ in range(80):
        space.run_round(names, lambda a, b: 2 * float(true[int(a), int(b)]), rng)
    given = 1e3 * with_coordinates(hosts, space).latencies_s
    assert np.abs(given - true).max() <= 1.5 and (given == np.round(given)).all()
    assert np.abs(given - true).max() > 0.1
    space.run_round(names[:4], lambda a, b: None, rng)
    with pytest.raises(InputError, match="'9' has no position"):
        with_coordinates(replace(hosts, names=(*hosts.names[:7], "9")), space)


def test_rounding_saves_moves() -> None:
    """Hosts 2 and 3 are equally far, and measured a little nearer in turn; without a weight of downtime only rounding
    keeps what runs where it is.
    """
    flips = []
    for quantum in (0.0, 1.0):
        problems = []
        for turn in range(6):
            delays = np.array([[0, 9, 5, 5], [9, 0, 5, 5], [5, 5, 0, 5], [5, 5, 5, 0]], float)
            near = 2 + turn % 2
            delays[[0, near], [near, 0]] -= 0.2
            hosts = with_delays(network(delays, cores=1.0), delays, quantum)
            problems.append(chain(hosts, weights=CONFIGURATIONS["baseline"]))
        start = np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])
        flips.append(control(problems, start, Planner(calm=True)).changes)
    assert flips == [[1, 2, 3, 4, 5], []]


def test_early_assignment() -> None:
    """One replica each, near the pinned ones, as far as there is room; rates do not matter."""
    delays = np.array([[0, 9, 3, 7], [9, 0, 8, 3], [3, 8, 0, 1], [7, 3, 1, 0]], float)
    # b is between a on 0 and c on 1: 3 + 8 by host 2, 7 + 3 by host 3, 9 on either of theirs.
    assert early_assignment(chain(network(delays))).tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    for rate in (20.0, 1e6):
        alone = chain(network(delays, cores=1.0), rate)
        assert early_assignment(alone).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    with pytest.raises(InputError, match="processing element a: none of its permitted hosts has enough free capacity"):
        early_assignment(chain(network(delays, cores=0.5)))


def test_start_up() -> None:
    """Early, then the optimum without downtime, then as ever; breaks when a step is left out or comes twice."""
    problems = [reference_problem(70, CONFIGURATIONS["balanced"], most=1) for _ in range(3)]
    record = control(problems)
    assert [period.how for period in record.periods] == ["early", "start", "near"]
    assert record.periods[0].counts.sum(axis=1).tolist() == [1] * 8 and record.periods[0].metrics.downtime_s == 0
    assert np.array_equal(record.periods[1].counts, anchor()) and record.changes == [0, 1]
    assert np.array_equal(start_deployment(problems[0]), anchor())
    # The second period is free: it changes to the same places where no change could ever be paid for.
    costly = [problem.change(bounds=Bounds(0.175, 30.0, 0.1)) for problem in problems[:2]]
    free = control(costly, planner=Planner("never")).periods[1]
    assert free.how == "start" and np.array_equal(free.counts, anchor()) and free.metrics.downtime_s > 0.1


def test_a_store_at_each_host() -> None:
    """§2.6 by hand: code and state through the store, with the delays and rates of the two hosts."""
    hosts = host_columns(
        list("012"),
        startup_s=0.5,
        cores=4.0,
        store_latency_ms=[10, 1, 40],
        to_store=[8, 80, 80],
        from_store=[80, 80, 4],
    )
    now = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    problem = chain(hosts, current=now)
    moved = now.copy()
    moved[1] = [0, 0, 1]
    upload, code, download = 0.02 + 8 / 8, 0.08 + 0.8 / 4, 0.08 + 8 / 4
    assert downtimes(problem, moved)[1] == pytest.approx(0.25 + max(upload, code) + download + 0.5)


def test_backlog_and_early_deployment_in_the_simulator() -> None:
    """After a burst a policy that plans for the backlog has more power, and the queue is gone sooner."""
    flow = compile_flow(read_dataflow("sc13-diamond"))
    cloud = read_catalogue("ec2-2013-m1")
    calm, quick = Edrp(rounds=1), Edrp(rounds=1, drain_s=120.0)
    source = int(flow.inputs[0])
    rates, queue = np.zeros((1, flow.size)), np.zeros(flow.size)
    rates[0, source], queue[source] = 2.0, 600.0
    live = running(calm.deploy(flow.with_rates(rates[0]), cloud))
    plans = [
        one.adapt(Observation(flow, cloud, 1, 9, 300.0, live, np.ones(1), rates, queue=queue), None)[0]
        for one in (calm, quick)
    ]
    into, _ = flow.ideal(flow.best, offered_rates(rates, queue, 120.0))
    wanted = into * flow.cost[flow.rows(flow.best)]
    assert (plans[1].power > wanted).all() and not (plans[0].power > wanted).all()
    given = np.zeros((6, flow.size))
    given[:, source] = [2.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    slow, fast = (simulate(flow, cloud, Edrp(rounds=1, early=True, drain_s=s), given) for s in (None, 60.0))
    queues = [run.intervals["queue"].to_numpy() for run in (slow, fast)]
    # One replica of each element is too little for the first interval; it is what is behind the backlog.
    assert queues[0][0] == queues[1][0] > 0 and queues[1][1:].sum() < 0.7 * queues[0][1:].sum()
    assert max(queues[0][-1], queues[1][-1]) < 1e-6
    first = Edrp(early=True).deploy(flow.with_rates(100 * rates[0]), cloud)
    assert first.counts.tolist() == [1] * flow.size
    plan, memory = Edrp(rounds=1, early=True).adapt(
        Observation(flow, cloud, 1, 9, 300.0, running(first), np.ones(1), 4 * rates), None
    )
    into, _ = flow.ideal(flow.best, 4 * rates[0])
    assert memory is True and (plan.power > into * flow.cost[flow.rows(flow.best)]).all()


def test_first_change_after_an_early_deployment_is_free() -> None:
    """Machines that hardly do anything: downtime weighs so much that they stay as they are, but for the first time."""
    flow = compile_flow(read_dataflow("sc13-diamond"))
    cloud = read_catalogue("ec2-2013-m1")
    spread = Deployment(cloud, flow.best)
    for element in range(flow.size):
        spread.put(element, spread.plan_machine(0))
    live, rates = running(spread), np.zeros((1, flow.size))
    rates[0, flow.inputs] = 0.01
    policy = Edrp(0.01, 0.01, 0.98, rounds=1, early=True)
    seen = Observation(flow, cloud, 1, 9, 300.0, live, np.ones(1), rates)
    used = [
        sum(bool(machine.instances) for machine in policy.adapt(seen, memory)[0].machines.values())
        for memory in (None, True)
    ]
    assert used[0] < used[1] == flow.size

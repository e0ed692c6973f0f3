"""Keyed streams of real processes whose state moves, and whose copies take over.

A job is a graph of operators. An operator has a fixed number of tasks, each for a part of the keys; tasks are grouped
into executors (the replicas: processes) on machines of a provider. A task may run in several executors on different
machines: copies, which receive everything that it receives.

Order and copies
    Every item carries a number that its source gave it: microseconds since the job began. Sources also send marks: "no
    further item up to this number". A task takes the items of all its producers by number, and waits until it knows
    that no smaller one can come; so its copies see the same items in the same order and send the same. A consumer drops
    what it has from a producer already, by producer and number. If a machine is killed, copies elsewhere carry on, and
    nothing is lost or there twice.

Reconfiguration (docs/specs/edrp.md, section 3.6)
    1  the coordinator tells executors to pause, sources keep what is offered
    2  executors are in migration mode
    3  they send END-OF-STREAM to all consumers
    4  and keep what still comes, until END-OF-STREAM has come from all producers
    5  they export the state of their tasks with the items kept: to the data store, or, where a task stays on its
       machine, to a folder of that machine; both under the number of the reconfiguration
    6  barrier A: all have exported
    7  all executors end, those of the new deployment start
    8  and import
    9  barrier B: all have imported and are connected
    10 operational mode: items kept first, then those that sources kept

    Every barrier has a time-out. What fails before A, all workers being there, is called off: they carry on. What fails
    between A and B is rolled back: the old deployment starts and imports the same exports.

Modules: `definition` (jobs and deployments), `task` (order, duplicates, state), `storage`, `wire` (authenticated
connections with JSON), `executor` (the process), `outside` (sources and sinks), `job` (the coordinator).
"""

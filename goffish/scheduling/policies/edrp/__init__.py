"""EDRP: replicas and places of a dataflow's elements by integer linear programming, with what changes cost in downtime.

Specification: EDRP. `problem` holds what is given, `program` the exact solver, `heuristic` the one for large instances,
`loop` the controller that plans period after period, `policy` the same for the simulator.
"""

"""EDRP: replicas and places of a dataflow's elements by integer linear programming, with what changes cost in downtime.

See docs/specs/edrp.md. `problem` holds what is given, `program` the exact solver, `heuristic` the one for large
instances, `policy` the controller that plans period after period.
"""

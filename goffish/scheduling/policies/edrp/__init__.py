"""EDRP: replication and placement of a dataflow's PEs by integer linear programming that includes downtime.

See docs/specs/edrp.md. `problem` holds the inputs, `program` the exact solver, `heuristic` the solver for large
problems, and `policy` the controller that plans every period.
"""

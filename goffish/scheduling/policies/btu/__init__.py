"""Provisioning by billing time units, after VISP (Hochreiner et al., PeerJ CS 2017): use machines for their paid time.

See docs/specs/btu.md. `model` holds the state of a decision, `trigger` and `ranking` its pure
functions, `controller` and `ending` the two levels, `threshold` the baseline, `policy` the same for the simulators.
"""

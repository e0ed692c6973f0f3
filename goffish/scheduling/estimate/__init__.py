"""Resource estimates of graph jobs from metrics of the graph and a calibration of the machine.

`goffish calibrate` measures; `estimate` returns work, memory and checkpoints of a `JobShape`, with the error of the
calibration on graphs that were not part of the fit; `spot_job` converts an estimate to the units and slots of
`goffish.scheduling.spot`. Checkpoints are those of the engine: an interrupted job resumes from the last one.
"""

from goffish.scheduling.estimate.calibration import Calibration, calibration_for, read_calibration
from goffish.scheduling.estimate.estimates import JobEstimate, SpotJob, estimate, shape_of, spot_job
from goffish.scheduling.estimate.features import JobShape

__all__ = [
    "Calibration",
    "JobEstimate",
    "JobShape",
    "SpotJob",
    "calibration_for",
    "estimate",
    "read_calibration",
    "shape_of",
    "spot_job",
]

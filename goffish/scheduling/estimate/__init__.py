"""What a graph job will take, from figures of the graph and a calibration of the machine.

`goffish calibrate` measures; `estimate` tells work, memory and checkpoints of a `JobShape` with the error that the
calibration was found to have on graphs it was not fitted to; `spot_job` puts that into the units and slots of
`goffish.scheduling.spot`. The checkpoints are those of the engine: a job that lost its machine resumes from one.
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

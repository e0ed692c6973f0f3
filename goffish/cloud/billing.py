"""What machines cost: every started quantum is paid. Specification of reactive provisioning, §2.2 (Eq. 2) and §6.13."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Billing

#: Seconds by which a stop may miss the end of a quantum without a new one being charged.
SLACK_S = 1e-6


def billed_quanta(elapsed_s: NDArray[np.float64] | float, billing: Billing) -> NDArray[np.float64]:
    """Quanta that are charged for machines which ran so long; none for one that was not started."""
    elapsed = np.asarray(elapsed_s, np.float64)
    charged = np.where(elapsed > SLACK_S, np.maximum(elapsed, billing.minimum_s), 0.0)
    return np.ceil((charged - SLACK_S) / billing.quantum_s).clip(min=0.0)


def rent(elapsed_s: NDArray[np.float64] | float, price_per_hour: Any, billing: Billing) -> NDArray[np.float64]:
    """Price of machines which ran so long, in the currency of the prices."""
    return billed_quanta(elapsed_s, billing) * billing.quantum_s / 3600.0 * np.asarray(price_per_hour, np.float64)


def paid_left_s(elapsed_s: NDArray[np.float64] | float, billing: Billing) -> NDArray[np.float64]:
    """Seconds until the paid time of running machines ends; a whole quantum just after one began."""
    elapsed = np.asarray(elapsed_s, np.float64)
    quanta = np.floor((elapsed + SLACK_S) / billing.quantum_s) + 1.0
    return quanta * billing.quantum_s - elapsed

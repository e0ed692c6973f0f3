"""Cost of machines: by running time, with every started quantum charged in full, and slot by slot.

See docs/specs/provisioning.md, section 2.2 (Eq. 2) and section 6.9; docs/specs/spot.md, section 2.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from goffish.cloud.catalogue import Billing
from goffish.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rule = Literal["hourly", "hourly_start", "per_second", "first_hour_free"]

#: The price that a charge is multiplied by: at the start of the slot, at its end, or at the start of the hour.
AT_START_OF_SLOT, AT_END_OF_SLOT, AT_START_OF_HOUR = 0, 1, 2
#: Seconds by which a stop may miss the end of a quantum without a new quantum being charged.
SLACK_S = 1e-6


def billed_quanta(elapsed_s: Floats | float, billing: Billing) -> Floats:
    """Number of quanta charged for these running times; 0 for machines that were not started."""
    elapsed = np.asarray(elapsed_s, np.float64)
    charged = np.where(elapsed > SLACK_S, np.maximum(elapsed, billing.minimum_s), 0.0)
    return np.ceil((charged - SLACK_S) / billing.quantum_s).clip(min=0.0)


def rent(elapsed_s: Floats | float, price_per_hour: Any, billing: Billing) -> Floats:
    """Cost of machines with these running times, in the currency of the prices."""
    return billed_quanta(elapsed_s, billing) * billing.quantum_s / 3600.0 * np.asarray(price_per_hour, np.float64)


def paid_left_s(elapsed_s: Floats | float, billing: Billing) -> Floats:
    """Seconds until the paid time of running machines ends; a whole quantum right after one began."""
    elapsed = np.asarray(elapsed_s, np.float64)
    quanta = np.floor((elapsed + SLACK_S) / billing.quantum_s) + 1.0
    return quanta * billing.quantum_s - elapsed


@dataclass(frozen=True, eq=False)
class Automaton:
    """Charges of a machine by the used slots of its billed hour; every new machine is in state 0.

    All amounts are machine-hours, to be multiplied by a price.

    Attributes
    ----------
    follow : int64, shape (states,)
        State after a slot without an interruption.
    step, release, revoke : float64, shape (states,)
        Hours charged for such a slot, on release, and on an interruption in this slot.
    priced : int
        `AT_START_OF_SLOT`, `AT_END_OF_SLOT` or `AT_START_OF_HOUR`: the price of a slot's charge.
    """

    follow: Ints
    step: Floats
    release: Floats
    revoke: Floats
    priced: int

    @property
    def states(self) -> int:
        """Number of states of the billed hour."""
        return self.follow.size


def automaton(rule: Rule, slots_per_hour: int, *, charge_revoked: bool = False) -> Automaton:
    """Return the automaton of a billing rule.

    Parameters
    ----------
    rule : {"hourly", "hourly_start", "per_second", "first_hour_free"}
        By the started hour, at the price at its end (the paper) or at its start (EC2 until 2017); by the second; by the
        second, but free if the machine is interrupted in its first hour (EC2 today).
    slots_per_hour : int
    charge_revoked : bool
        With the hourly rules: also charge the hour of an interruption.

    Raises
    ------
    InputError
        For an unknown rule, less than one slot an hour, or `charge_revoked` with a rule that is not hourly.
    """
    if rule not in get_args(Rule):
        raise InputError(f"unknown billing rule {rule!r}; accepted: {', '.join(get_args(Rule))}")
    if slots_per_hour < 1:
        raise InputError(f"slots_per_hour = {slots_per_hour}: must be at least 1")
    hour = slots_per_hour
    if rule in ("hourly", "hourly_start"):
        at = np.arange(hour)
        return Automaton(
            (at + 1) % hour,
            (at == hour - 1).astype(np.float64),
            (at > 0).astype(np.float64),
            np.full(hour, float(charge_revoked)),
            AT_START_OF_HOUR if rule == "hourly_start" else AT_END_OF_SLOT,
        )
    if charge_revoked:
        raise InputError(f"charge_revoked: not available for {rule}; use an hourly rule")
    if rule == "per_second":
        share = np.full(1, 1.0 / hour)
        return Automaton(np.zeros(1, np.int64), share, np.zeros(1), share.copy(), AT_START_OF_SLOT)
    at = np.arange(hour + 1)
    step = np.where(at == hour, 1.0 / hour, (at == hour - 1).astype(np.float64))
    return Automaton(
        np.minimum(at + 1, hour),
        step,
        np.where(at < hour, at / hour, 0.0),
        np.where(at < hour, 0.0, 1.0 / hour),
        AT_START_OF_SLOT,
    )

"""Times that a processor takes for the parts of a word count."""

from __future__ import annotations

from typing import Any, NamedTuple

#: Records per second of a reducer in the published evaluation: 250,000 for 40 reducers, the end of the axis of Fig. 5.
PUBLISHED_RATE = 6250.0


class Access(NamedTuple):
    """Seconds that a record takes of a client, until it has the answers, and of the processor of the store."""

    waited_s: float
    served_s: float

    def times(self, factor: float) -> Access:
        """Return the same access on machines that need a multiple of the time."""
        return Access(factor * self.waited_s, factor * self.served_s)


class Costs(NamedTuple):
    """Seconds of a processor.

    Attributes
    ----------
    message_s : float
        Of a message, besides its records.
    read_s, keep_s : float
        Receiving a record as its owner, and keeping it as a secondary until a checkpoint contains it.
    count_s : float
        Counting a record.
    entry_s : float
        Capturing and sending an entry of a state, or receiving and installing it.
    ack_s : float
        Acknowledging a record: sending the id of the record and its root, and joining it to others.
    store, store_part : Access
        Reading and writing a value in an external store: record by record, and a message at a time.
    part : int
        Records of a message between two hosts.
    """

    message_s: float
    read_s: float
    keep_s: float
    count_s: float
    entry_s: float
    ack_s: float
    store: Access
    store_part: Access
    part: int = 50

    def scaled(self, rate: float = PUBLISHED_RATE) -> Costs:
        """Return costs in the same proportions with which a reducer without copies counts records at a rate."""
        factor = 1 / (rate * (self.read_s + self.count_s))
        times: dict[str, Any] = {
            name: value * factor if isinstance(value, float) else value.times(factor)
            for name, value in self._asdict().items() if name != "part"
        }  # fmt: skip
        return self._replace(**times)


#: Of a node of the published evaluation, with four reducers: 25,000 records per second. Stated.
NODE = Costs(2e-5, 1e-6, 1e-6, 1 / (4 * PUBLISHED_RATE), 1e-6, 1e-6, Access(0.0, 0.0), Access(0.0, 0.0))
#: Of a worker process and of Redis on the same host, as `experiments.ring.measured` prints them for messages of 50 and
#: of 500 records: AMD EPYC, Python 3.11.
COSTS = Costs(6.7e-6, 0.79e-6, 0.79e-6, 1.81e-6, 0.31e-6, 0.62e-6, Access(29.9e-6, 1.52e-6), Access(0.98e-6, 0.4e-6))
LARGE = Costs(
    6.7e-6, 0.085e-6, 0.085e-6, 1.65e-6, 0.3e-6, 0.23e-6, Access(27.1e-6, 1.46e-6), Access(0.46e-6, 0.41e-6), 500
)

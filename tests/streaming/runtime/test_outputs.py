"""What waits for checkpoints: copies that are made of additions hold the same as those that are made at once."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from goffish.streaming.batches import Batch
from goffish.streaming.ring.sender import Lane
from goffish.streaming.runtime.outputs import Output, OutputCopy
from goffish.streaming.runtime.packing import Records
from goffish.streaming.runtime.plan import Mark

UNSENT = Mark(0, 0, {})


def hold(output: Output, values: list[int]) -> None:
    output.hold(np.arange(len(values), dtype=np.uint64), Records("channel", Batch(values)))


def values_of(copy: OutputCopy) -> list[int]:
    parts = [part for sent in copy.sent for part in pickle.loads(sent.parts)]
    return [value for _, _, records in parts for value in records.batch.values]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("hold"), st.integers(1, 3)),
            st.tuples(st.just("checkpoint"), st.sampled_from(["seen", "missed", "whole"])),
            st.tuples(st.just("confirm"), st.integers(0, 3)),
            st.tuples(st.just("acknowledge"), st.integers(0, 5)),
        ),
        max_size=40,
    )
)
def test_copies(events: list[tuple[str, Any]]) -> None:
    output = Output(Lane(1), UNSENT)
    copy, complete, folder = OutputCopy(), True, dict[int | None, Any]()
    serial = confirmed = count = known = 0
    released: list[int] = []
    for kind, what in events:
        if kind == "hold":
            hold(output, list(range(count, count + what)))
            count += what
        elif kind == "checkpoint":
            serial += 1
            if output.held:
                output.seal(serial, UNSENT)
            added = output.added(whole=what == "whole")
            folder |= added.entries
            complete = what == "whole" or (complete and what == "seen")
            if what != "missed":
                copy = added.after(copy)
            if complete:
                assert copy == output.copy()
            assert OutputCopy.read(folder) == output.copy()
        elif kind == "confirm":
            confirmed = min(serial, max(confirmed, serial - what))
            for _, records in output.release(confirmed):
                assert output.lane.number == len(released)
                released += records.batch.values
                output.lane.number += len(records)
        else:
            known = min(len(released), known + what)
            output.forget(known)
        assert output.unacknowledged <= count - known
        assert output.empty == (output.unacknowledged == 0 or not output.copy().sent)
    assert released == list(range(len(released)))
    if complete:  # another worker takes the lane over
        after = Output(Lane(1, 1), UNSENT, copy)
        rest = [value for _, records in after.release(None) for value in records.batch.values]
        assert rest == values_of(copy) == list(range(copy.number - len(rest), copy.number))

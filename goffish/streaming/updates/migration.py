"""State of operators in the form of a new version: values of keys, migrated by functions of the user.

See docs/specs/updates.md, section 7.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from goffish.errors import InputError
from goffish.streaming.aggregates import Aggregate
from goffish.streaming.batches import Batch, as_arrow
from goffish.streaming.hashing import Ranges, distinct_key, positions_of
from goffish.streaming.operators import TIMER, VALUE, Instance, described
from goffish.streaming.state import Delta, KeyedState, captured
from goffish.streaming.topology import AggregateOptions, Operator, ReduceOptions, Topology
from goffish.streaming.updates.plan import form

#: Keys of which a worker tries the migration before an update changes anything.
SAMPLE = 1000
_INTEGERS = range(-(1 << 63), 1 << 63)

_Migrate: TypeAlias = Callable[[Any], Any]


class _Kept(NamedTuple):
    """What an operator keeps of a key: its value, or that of one window."""

    key: Any
    window: Any
    value: Any


class _Timer(NamedTuple):
    key: Any
    time: int


def migrated(old: Operator, new: Operator, delta: Delta) -> Delta:
    """Return entries of the state of an operator in the form of a new version.

    The value of a key is the total of ``reduce``, a mapping of what ``process`` keeps, or a mapping with the number of
    each aggregate: for a mean, the sum and the count.

    Parameters
    ----------
    old, new : Operator
        The new one has the function ``migrate``.
    delta : Delta
        Whole values of some keys.

    Returns
    -------
    Delta

    Raises
    ------
    InputError
        The function fails for a key, or what it returns is not accepted; names the operator and the key.
    """
    assert new.migrate is not None
    kept: list[_Kept] = []
    timers: list[_Timer] = []
    for one in _read(old, delta):
        if isinstance(one, _Timer):
            timers.append(one)
        else:
            kept.append(_Kept(one.key, one.window, _value(new, new.migrate, one)))
    return _written(new, kept, timers if new.kind == "process" else [])


def check_sample(old: Instance, new: Operator) -> None:
    """Try the migration of some keys of a state, which does not change.

    Parameters
    ----------
    old : Instance
    new : Operator

    Raises
    ------
    InputError
        As of `migrated`.
    """
    assert old.state is not None
    migrated(old.operator, new, old.state.sample(SAMPLE))


def migrated_state(old: Instance, new: Operator) -> Delta:
    """Return all state of an instance in the form of a new version; see `migrated`."""
    assert old.state is not None
    return migrated(old.operator, new, old.state.extract())


def take_over(old: Instance, new: Instance, found: Delta | None = None) -> None:
    """Move all state of an instance to that of a new version, in its form.

    Parameters
    ----------
    old, new : Instance
    found : Delta, optional
        What `migrated_state` returned since the state changed last.

    Raises
    ------
    InputError
        As of `migrated`; nothing has changed.
    """
    assert old.state is not None and new.state is not None
    found = migrated_state(old, new.operator) if found is None else found
    old.state.clear()
    new.state.add(found)


def forms_of(topology: Topology) -> dict[str, Any]:
    """Return what identifies the forms of all states, for checkpoints."""
    forms = {one.name: form(one) for one in topology.operators if one.migrate is not None}
    return {"python": sys.implementation.cache_tag, "operators": forms}


def to_migrate(topology: Topology, saved: Mapping[str, Any] | None) -> list[str]:
    """Return the operators whose state in a checkpoint has another form than that of this version.

    Parameters
    ----------
    topology : Topology
    saved : mapping, optional
        What `forms_of` returned for the version of the checkpoint.

    Returns
    -------
    list of str

    Raises
    ------
    InputError
        An operator lacks the function that brought its state into this form.
    """
    known = (saved or {}).get("operators", {})
    # The digests of functions are those of their compiled code.
    comparable = (saved or {}).get("python") == sys.implementation.cache_tag
    found = []
    for one in topology.operators:
        if one.name in known and one.migrate is None:
            raise InputError(
                f"operator {one.name}: migrate is missing: it identifies the form of the state, and the version of the "
                "checkpoint has it; give it again, or name another folder"
            )
        if one.migrate is not None and (one.name not in known or (comparable and known[one.name] != form(one))):
            found.append(one.name)
    return found


def migrate_positions(instance: Instance, ranges: Ranges) -> None:
    """Bring entries that were restored into the form of a version, without recording that as changes.

    Parameters
    ----------
    instance : Instance
    ranges : iterable of (int, int)
        Positions of their keys.

    Raises
    ------
    InputError
        As of `migrated`; nothing has changed.
    """
    assert instance.state is not None
    found = migrated(instance.operator, instance.operator, instance.state.extract(ranges))
    instance.state.discard(ranges)
    instance.state.install(found)


class HeldRecords(KeyedState):
    """Records for an operator whose state is still to be migrated: a part of the keyed state, so that none is lost."""

    def hold(self, keys: list[Any], batch: Batch, read_at: float) -> None:
        """Keep records, with the time when they were read.

        Parameters
        ----------
        keys : list
            As `distinct_key`.
        batch : Batch
        read_at : float
        """
        arrow = not isinstance(batch.values, list)
        times = [None] * len(batch) if batch.times is None else batch.times.tolist()
        for key, row, time in zip(keys, batch.rows(), times, strict=True):
            self.put(key, len(self.entries.get(key, ())), (row, time, arrow, read_at))

    def __len__(self) -> int:
        return sum(map(len, self.entries.values()))

    def release(self, operator: str) -> tuple[Batch, float] | None:
        """Remove and return all records, those of a key in order, and when the first one was read.

        Parameters
        ----------
        operator : str
            For messages.
        """
        kept = [one for numbered in self.entries.values() for _, one in sorted(numbered.items())]
        if not kept:
            return None
        self.clear()
        rows, times, arrow, read = zip(*kept, strict=True)
        values = as_arrow(list(rows), operator) if all(arrow) else list(rows)
        return Batch(values, None if None in times else np.array(times, np.int64)), min(read)


def _read(operator: Operator, delta: Delta) -> Iterator[_Kept | _Timer]:
    """Iterate over the values and timers of a state."""
    if isinstance(operator.options, AggregateOptions):
        for key, window, found, _ in delta.entries():
            yield _Kept(key, window, {
                one.name: _number(one, found[f"value{at}"], found[f"count{at}"])
                for at, one in enumerate(operator.options.aggregates)
            })  # fmt: skip
    elif operator.kind == "process":
        values: dict[Any, _Kept] = {}
        for key, (kind, subkey), value, _ in delta.entries():
            known = values.setdefault(distinct_key(key), _Kept(key, None, {}))
            if kind == VALUE:
                known.value[subkey] = value
            else:
                yield _Timer(key, subkey)
        yield from (one for one in values.values() if one.value)
    else:
        for key, window, value, _ in delta.entries():
            yield _Kept(key, window, value)


def _number(aggregate: Aggregate, value: Any, count: int) -> Any:
    match aggregate.function:
        case "count":
            return count
        case "mean":
            return value, count
        case "sum":
            return value
    return value if count else None


def _value(new: Operator, migrate: _Migrate, kept: _Kept) -> Any:
    """Return the value of a key in the form of a new version."""
    try:
        value = migrate(kept.value)
        _check(new, value)
        captured(value)
    except Exception as error:
        raise InputError(f"operator {new.name}: migrate: key {kept.key!r:.80}: {described(error)}") from None
    return value


def _check(new: Operator, value: Any) -> None:
    """Raise an error if an operator cannot keep a value."""
    options = new.options
    if isinstance(options, AggregateOptions):
        names = [one.name for one in options.aggregates]
        if not isinstance(value, Mapping) or set(value) != set(names):
            raise InputError(f"returned {value!r:.60}: return a mapping with {', '.join(names)}")
        for one in options.aggregates:
            _check_number(one, value[one.name])
    elif isinstance(options, ReduceOptions):
        if not _fits(options.initial, value):
            expected = type(options.initial).__name__
            raise InputError(f"returned {value!r:.60}: return a total like initial, which is of type {expected}")
    elif not isinstance(value, Mapping):
        raise InputError(f"returned {value!r:.60}: return a mapping of what state has for the key")


def _fits(initial: Any, value: Any) -> bool:
    if initial is None:
        return True
    kind = numbers.Number if isinstance(initial, numbers.Number) else type(initial)
    return isinstance(value, kind)


def _check_number(aggregate: Aggregate, value: Any) -> None:
    name, function = aggregate.name, aggregate.function
    if function == "mean":
        if not (isinstance(value, tuple | list) and len(value) == 2 and _is_number(value[0]) and _is_count(value[1])):
            raise InputError(f"returned {name} = {value!r:.60}: a mean is a pair of sum and count")
    elif function == "count":
        if not _is_count(value):
            raise InputError(f"returned {name} = {value!r:.60}: a count is an integer of at least 0")
    elif not (_is_number(value) or (value is None and function != "sum")):
        raise InputError(f"returned {name} = {value!r:.60}: return a number of 64 bits")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and (not isinstance(value, numbers.Integral) or int(value) in _INTEGERS)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and type(value) is not bool and 0 <= int(value) < _INTEGERS.stop


def _written(operator: Operator, kept: Collection[_Kept], timers: Collection[_Timer]) -> Delta:
    """Return the entries of a state."""
    if operator.kind == "process":
        rows = [(one.key, (VALUE, subkey), value) for one in kept for subkey, value in one.value.items()]
        rows += [(one.key, (TIMER, one.time), True) for one in timers]
    else:
        rows = [(one.key, one.window, one.value) for one in kept]
    keys, subkeys = ([row[at] for row in rows] for at in range(2))
    values: Any = [row[2] for row in rows]
    if isinstance(operator.options, AggregateOptions):
        values = _accumulators(operator.options.aggregates, values)
    return Delta(positions_of(keys), keys, subkeys, values, np.zeros(len(rows), np.bool_))


def _accumulators(aggregates: tuple[Aggregate, ...], values: list[Mapping[str, Any]]) -> pa.StructArray:
    columns, names = [], []
    for at, one in enumerate(aggregates):
        found = [value[one.name] for value in values]
        pairs: list[tuple[Any, int]]
        match one.function:
            case "count":
                pairs = [(0, count) for count in found]
            case "mean":
                pairs = [(float(total), count) for total, count in found]
            case "sum":
                pairs = [(total, 0) for total in found]
            case _:
                pairs = [(0, 0) if value is None else (value, 1) for value in found]
        floats = one.function == "mean" or not all(isinstance(value, numbers.Integral) for value, _ in pairs)
        columns.append(pa.array([value for value, _ in pairs], pa.float64() if floats else pa.int64()))
        columns.append(pa.array([count for _, count in pairs], pa.int64()))
        names += [f"value{at}", f"count{at}"]
    return pa.StructArray.from_arrays(columns, names)

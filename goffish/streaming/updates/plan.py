"""The difference of two versions of a flow, and what each operator has to do while it is updated.

See docs/specs/updates.md.
"""

from __future__ import annotations

import functools
import hashlib
import numbers
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from goffish.errors import InputError
from goffish.streaming.topology import Channel, Operator, Topology
from goffish.streaming.updates.analysis import can_mix, pin_points
from goffish.streaming.updates.versions import PartialWindow, Strategy, UpdateType, Version, classify

_WINDOWED = ("window", "within")
#: Kinds of operators whose state can be migrated.
_MIGRATED = ("aggregate", "reduce", "process")


@dataclass(frozen=True)
class UpdatePlan:
    """How a running flow becomes another one.

    Attributes
    ----------
    number : int
        Of the new version.
    old, new : Topology
    strategy : Strategy
    partial_windows : PartialWindow
        What becomes of windows and joins that only have records of the old version.
    kind : UpdateType
    mixes : bool
        Whether ``hti`` would let results depend on both versions.
    own : frozenset of str
        Operators that have an instance for each version.
    own_state : frozenset of str
        Of these, the ones whose instances have a state each; others share it.
    common : frozenset of str
        Channels, by `channel_name`, whose records took the same path in both versions.
    movable : frozenset of str
        Channels whose records can be processed by either version: those of another key are on other workers.
    migrated : frozenset of str
        Operators whose state goes over to the new version in another form.
    """

    number: int
    old: Topology
    new: Topology
    strategy: Strategy
    partial_windows: PartialWindow
    kind: UpdateType
    mixes: bool
    own: frozenset[str]
    own_state: frozenset[str]
    common: frozenset[str]
    movable: frozenset[str]
    migrated: frozenset[str]

    def held_name(self, operator: str) -> str:
        """Return the name of the state with the records that wait until that of an operator is migrated."""
        return f"{operator}@{self.number}@held"

    @property
    def moving(self) -> frozenset[str]:
        """Channels, by `channel_name`, to which the new version takes records that the old one has sent.

        Otherwise, records could stay in a loop of the old version forever.
        """
        back = frozenset(channel_name(channel) for channel in self.new.channels if channel.feedback)
        match self.strategy:
            case Strategy.HTI:
                return self.movable | back
            case Strategy.PVC:
                return self.common | back
        return back

    @property
    def text(self) -> str:
        """The changes in words."""
        was, now = set(self.old.names), set(self.new.names)
        parts = (
            ("changed", sorted(name for name in was & now if name in self.own)),
            ("added", sorted(now - was)),
            ("removed", sorted(was - now)),
        )
        return "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)

    def to_dict(self) -> dict[str, Any]:
        """Return what the update does as a mapping for JSON.

        Returns
        -------
        dict
        """
        before = set(self.old.names)
        windows = sorted(
            name
            for name in (self.own_state - self.migrated) | (before - set(self.new.names))
            if name in before and has_windows(self.old.operator(name))
        )
        merged = self.partial_windows == PartialWindow.MERGE
        return {
            "version": self.number, "kind": self.kind.name.lower().replace("_", " "), "changes": self.text,
            "strategy": str(self.strategy), "ends_windows": windows, "migrates": sorted(self.migrated),
            "mixes": self.mixes and (self.strategy == Strategy.HTI or merged),
            "loses": self.strategy == Strategy.NCL or (self.partial_windows == PartialWindow.DROP and bool(windows)),
        }  # fmt: skip

    def check_sinks(self) -> None:
        """Raise an error if a sink that only the new version has cannot be written, or has results of another run."""
        for name, sink in self.new.sinks.items():
            if name in self.own:
                sink.check()
                sink.check_unused()


def channel_name(channel: Channel) -> str:
    """Return what identifies a channel in all versions of a flow."""
    return f"{channel.source}.{channel.output}>{channel.target}.{channel.port}"


def plan_update(
    number: int,
    old: Topology,
    new: Topology,
    strategy: Strategy = Strategy.MVC,
    partial_windows: PartialWindow = PartialWindow.EMIT,
) -> UpdatePlan:
    """Compare two versions of a flow.

    Parameters
    ----------
    number : int
        Of the new version.
    old, new : Topology
    strategy : Strategy
    partial_windows : PartialWindow

    Returns
    -------
    UpdatePlan

    Raises
    ------
    InputError
        Nothing differs, or a difference needs the flow to be stopped.
    """
    if old.name != new.name:
        raise InputError(f"flow {new.name}: the running flow is {old.name}; both versions must have one name")
    before = {one.name: one for one in old.operators}
    changed = {one.name for one in new.operators if one.name in before and _differ(before[one.name], one)}
    if strategy == Strategy.NCL:
        partial_windows = PartialWindow.DROP
    migrated = {
        one.name for one in new.operators
        if one.name in before and _migrates(before[one.name], one, partial_windows)
    }  # fmt: skip
    changed |= migrated
    for one in (*old.operators, *new.operators):
        both = one.name in before and one.name in new.names
        if one.kind in ("source", "event_time", "loop") and (one.name in changed or not both):
            raise InputError(
                f"operator {one.name}: sources, event times and loops cannot be updated while the flow runs; stop it "
                "with a checkpoint, and start the new version from it"
            )
    if digest(old.on_error) != digest(new.on_error):
        raise InputError(f"flow {new.name}: on_error cannot be updated while the flow runs")
    versions = _version(1, old, ()), _version(2, new, changed)
    if versions[0].parts == versions[1].parts:
        raise InputError(f"flow {new.name}: no operator and no channel differs from the running version")
    pins = pin_points(*versions) if strategy == Strategy.PVC else frozenset[str]()
    differing = _differing(old, new, changed)
    own = changed | (set(new.names) - before.keys())
    if strategy != Strategy.HTI and partial_windows != PartialWindow.MERGE:
        own |= {one.name for one in new.operators if has_windows(one) and one.name in differing & before.keys()}
    own_state = migrated | {
        name
        for name in own & before.keys() - migrated
        if not _keeps_state(before[name], new.operator(name), strategy, partial_windows)
    }
    below = _below(old, pins) | _below(new, pins)
    keys = [{channel_name(channel): digest(channel.key) for channel in one.channels} for one in (old, new)]
    movable = {name for name in keys[0].keys() & keys[1].keys() if keys[0][name] == keys[1][name]}
    paths = {channel_name(channel) for channel in new.channels if channel.source not in differing | below}
    return UpdatePlan(
        number, old, new, strategy, partial_windows, classify(*versions), can_mix(*versions), frozenset(own),
        frozenset(own_state), frozenset(paths & movable), frozenset(movable), frozenset(migrated),
    )  # fmt: skip


def versions_of(plan: UpdatePlan) -> tuple[Version, Version]:
    """Return both versions of a flow as dataflows of the formulas."""
    return _version(1, plan.old, ()), _version(2, plan.new, plan.own & set(plan.old.names))


def returning(topology: Topology) -> dict[str, str]:
    """Return the operators whose records return to the beginnings of loops."""
    closed = {channel.target: channel.source for channel in topology.channels if channel.feedback}
    found = dict(closed)
    for _ in closed:  # a loop may be closed by another one
        found = {loop: closed.get(source, source) for loop, source in found.items()}
    return found


def is_same(one: Topology, other: Topology) -> bool:
    """Whether two descriptions are of one version of a flow."""
    parts = [
        (flow.name, [(operator.name, _logic(operator), operator.inputs) for operator in flow.operators])
        for flow in (one, other)
    ]
    return digest(parts[0]) == digest(parts[1])


def _differ(old: Operator, new: Operator) -> bool:
    """Whether the logic of an operator differs; which operators it receives from does not count."""
    return digest(_logic(old)) != digest(_logic(new)) or any(
        {(one.output, one.port) for one in old.inputs if one.source == source}
        != {(one.output, one.port) for one in new.inputs if one.source == source}
        for source in {one.source for one in old.inputs} & {one.source for one in new.inputs}
    )


def _logic(operator: Operator) -> tuple[Any, ...]:
    inputs = {(one.port, digest(one.key), one.feedback) for one in operator.inputs}
    return operator.kind, operator.function, operator.options, dict(operator.alternates), sorted(inputs)


def _version(number: int, topology: Topology, changed: Iterable[str]) -> Version:
    logic = {one.name: 2 if one.name in changed else 1 for one in topology.operators if one.kind != "loop"}
    returns = returning(topology)
    channels = {(returns.get(one.source, one.source), one.target) for one in topology.channels if not one.feedback}
    joins = [one.name for one in topology.operators if has_windows(one)]
    return Version.of(number, logic, channels, joins)


def has_windows(operator: Operator) -> bool:
    """Whether results of an operator depend on several records that arrive until some event time."""
    return any(getattr(operator.options, name, None) is not None for name in _WINDOWED)


def _differing(old: Topology, new: Topology, changed: set[str]) -> set[str]:
    """Return the operators whose results may differ between the versions."""
    edges = [{(c.source, c.output, c.target, c.port) for c in one.channels} for one in (old, new)]
    starts = changed | {target for _, _, target, _ in edges[0] ^ edges[1]}
    return _below(old, starts) | _below(new, starts)


def _below(topology: Topology, starts: Iterable[str]) -> set[str]:
    """Return some operators and all that receive from them, also indirectly."""
    found = set(starts)
    while more := {one.target for one in topology.channels if one.source in found} - found:
        found |= more
    return found


def form(operator: Operator) -> str:
    """Return what identifies the form of the state of an operator: the function that brought it into this form."""
    return "" if operator.migrate is None else digest(operator.migrate)


def _migrates(old: Operator, new: Operator, partial: PartialWindow) -> bool:
    """Whether the state of an operator goes over to the new version in another form.

    Raises
    ------
    InputError
        The function that gives it this form is missing.
    """
    windowed = has_windows(old) or has_windows(new)
    if form(old) == form(new) or (windowed and partial != PartialWindow.MERGE):
        return False
    kept = [digest([_keys(one), *(getattr(one.options, name, None) for name in _WINDOWED)]) for one in (old, new)]
    if kept[0] != kept[1] or not {old.kind, new.kind} <= set(_MIGRATED):
        return False  # and the state does not fit
    if new.migrate is None:
        raise InputError(
            f"operator {new.name}: migrate is missing: it identifies the form of the state, and the running version "
            "has it; give it again, or give the new operator another name, to begin with an empty state"
        )
    return True


def _keeps_state(old: Operator, new: Operator, strategy: Strategy, partial: PartialWindow) -> bool:
    """Whether both instances of an operator use one state.

    Raises
    ------
    InputError
        They would have to, but cannot.
    """
    fits = digest(_layout(old)) == digest(_layout(new)) and _are_alike(old, new)
    if not any(has_windows(one) for one in (old, new)):
        if not fits:
            remedy = "give the new operator another name, to begin with an empty state"
            if digest(_keys(old)) == digest(_keys(new)) and {old.kind, new.kind} <= set(_MIGRATED):
                remedy = f"give migrate, a function from the old state of a key to the new one, or {remedy}"
            raise InputError(
                f"operator {new.name}: its state does not fit the new version (kind, key, aggregates or type of "
                f"initial differ); {remedy}"
            )
        return True
    if strategy == Strategy.HTI:
        return fits and form(old) == form(new)
    if partial == PartialWindow.MERGE and not fits:
        raise InputError(f"operator {new.name}: windows that differ cannot be merged; choose emit or drop")
    return partial == PartialWindow.MERGE


def _layout(operator: Operator) -> tuple[Any, ...]:
    """Return what the state of an operator depends on."""
    kept = (getattr(operator.options, name, None) for name in ("aggregates", *_WINDOWED))
    return (operator.kind, *kept, _keys(operator))


def _are_alike(old: Operator, new: Operator) -> bool:
    """Whether totals of `reduce` have one type, as far as their first values show."""
    first = [getattr(one.options, "initial", None) for one in (old, new)]
    numeric = all(isinstance(one, numbers.Number) for one in first)
    return numeric or None in first or type(first[0]) is type(first[1])


def _keys(operator: Operator) -> list[tuple[int, str]]:
    return sorted((one.port, digest(one.key)) for one in operator.inputs if one.key is not None)


def digest(value: Any) -> str:
    """Return a digest of a value that is equal for equal functions, wherever in which file they are.

    A function counts with its code, defaults, the values that it encloses, and the functions, classes and values of
    its module that it uses; those of other modules count by their names.

    Parameters
    ----------
    value : object

    Returns
    -------
    str

    Examples
    --------
    >>> digest(lambda n: n + 1) == digest(lambda n: n + 1), digest(lambda n: n + 1) == digest(lambda n: n + 2)
    (True, False)
    """
    return hashlib.sha256(repr(_described(value, frozenset())).encode()).hexdigest()


def _described(value: Any, above: frozenset[int]) -> Any:
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return type(value).__name__, value
    if id(value) in above:
        return "recursive"
    within = above | {id(value)}
    each = functools.partial(_described, above=within)
    match value:
        case list() | tuple():
            return type(value).__name__, [each(one) for one in value]
        case set() | frozenset():
            return type(value).__name__, sorted(repr(each(one)) for one in value)
        case Mapping():
            return "mapping", sorted((repr(each(key)), repr(each(one))) for key, one in value.items())
        case functools.partial():
            return "partial", each(value.func), each(value.args), each(value.keywords)
        case types.MethodType():
            return "method", each(value.__func__), each(value.__self__)
        case types.FunctionType():
            enclosed = [each(cell.cell_contents) for cell in value.__closure__ or ()]
            return "function", _code(value.__code__, each), each(value.__defaults__), each(value.__kwdefaults__), (
                enclosed, list(_used(value, each))
            )  # fmt: skip
        case types.ModuleType():
            return "module", value.__name__
        case type():
            return _class(value, each)
    if is_dataclass(value):
        return type(value).__qualname__, [(one.name, each(getattr(value, one.name))) for one in fields(value)]
    if (module := getattr(value, "__module__", None)) and (name := getattr(value, "__qualname__", None)):
        return module, name
    from cloudpickle import dumps

    try:
        return type(value).__qualname__, dumps(value)
    except Exception:  # counts as changed
        return type(value).__qualname__, id(value)


def _code(code: types.CodeType, each: Callable[[Any], Any]) -> Any:
    constants = [_code(one, each) if isinstance(one, types.CodeType) else each(one) for one in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_flags, constants


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _names(one)


def _used(function: types.FunctionType, each: Callable[[Any], Any]) -> Iterator[Any]:
    """Iterate over what a function uses of its module."""
    for name in sorted(set(_names(function.__code__))):
        if name in function.__globals__:
            found = function.__globals__[name]
            if isinstance(found, types.FunctionType | type) and found.__module__ != function.__module__:
                yield name, found.__module__, found.__qualname__
            else:
                yield name, each(found)


def _class(value: type, each: Callable[[Any], Any]) -> Any:
    own = {
        name: one for name, one in vars(value).items()
        if isinstance(one, types.FunctionType | staticmethod | classmethod | property) or not name.startswith("__")
    }  # fmt: skip
    parts = [(name, each(_unwrapped(one))) for name, one in sorted(own.items())]
    return "class", value.__qualname__, [base.__qualname__ for base in value.__bases__], parts


def _unwrapped(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value

"""All policies by their names, with their options, for the command line and the service."""

from __future__ import annotations

import dataclasses
import math
import sys
import typing
from collections.abc import Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from goffish.errors import InputError
from goffish.scheduling.policies.observation import Policy


class Known(NamedTuple):
    """A policy that can be asked for.

    Attributes
    ----------
    summary : str
        What it does, in a line.
    place : str
        Module and class, below this package.
    fixed : mapping
        Options that its name implies.
    looks_ahead : bool
        Whether it makes use of forecasts.
    nested : (str, str), optional
        A field, and the class of its value, whose fields are options of the policy as well.
    """

    summary: str
    place: str
    fixed: Mapping[str, Any] = {}
    looks_ahead: bool = False
    nested: tuple[str, str] | None = None


_PACKAGE = "goffish.scheduling.policies"
_AVERAGING = "averaging.Averaging"
#: No option needs more than this; seeds may be larger.
_LARGEST = 1e9
POLICIES: dict[str, Known] = {
    "reactive-global": Known(
        "costs of alternates include what follows; machines are repacked (CE)",
        "reactive.Reactive",
        {"variant": "central"},
    ),
    "reactive-local": Known(
        "every element by its own costs, nothing is repacked (SH)", "reactive.Reactive", {"variant": "sharded"}
    ),
    "reactive-strict": Known(
        "every element on machines of its own, from what it sees itself", "reactive.Reactive", {"variant": "strict"}
    ),
    "ga": Known(
        "genetic algorithm at every step: near the optimum, and slow",
        "genetic.Genetic",
        nested=("search", "evolution.Search"),
    ),
    "hybrid": Known("genetic algorithm for the first deployment, reactive-global from then on", "reactive.Hybrid"),
    "plasticc": Known("plans ahead on forecasts, acts late", "plasticc.Plasticc", looks_ahead=True),
    "caf": Known("plans one step on the last interval", _AVERAGING, {"kind": "CAF"}),
    "waaf": Known("plans one step on the mean of the last intervals", _AVERAGING, {"kind": "WAAF"}),
    "wpa": Known("plans one step on the mean of the forecast", _AVERAGING, {"kind": "WPA"}, True),
    "wpo": Known("plans one step on the best of the forecast", _AVERAGING, {"kind": "WPO"}, True),
    "wpp": Known("plans one step on the worst of the forecast", _AVERAGING, {"kind": "WPP"}, True),
    "ds2": Known("true processing rates, optimal parallelism in one step", "peers.TrueRateScaling"),
    "target-utilisation": Known(
        "keeps cores busy to a target, with stabilisation, as Flink's autoscaler does", "peers.UtilisationScaling"
    ),
    "threshold": Known("one instance more or less by the length of the queue", "peers.QueueScaling"),
    "edrp": Known(
        "replicas and places by an integer program over response time, cost and downtime (search where it is large)",
        "edrp.policy.Edrp",
    ),
    "replicate": Known(
        "instances of another policy, copied onto its spare cores so that a failed machine is not missed",
        "replication.policy.Replicate",
    ),
    "latency-aware": Known(
        "instances and machines of another policy, placed so that those that talk sit together",
        "latency_aware.policy.LatencyAware",
        nested=("search", "latency_aware.ant_system.Ants"),
    ),
    "btu": Known(
        "fills machines that are paid for, and empties one only when its billing time unit ends (VISP)",
        "btu.policy.Btu",
        nested=("settings", "btu.model.Settings"),
    ),
}
#: In front of a name: its first deployment, never adapted.
STATIC = "static-"


def policy_names() -> list[str]:
    """All that `make_policy` accepts."""
    return [*POLICIES, *(STATIC + name for name in ("reactive-global", "reactive-local", "ga"))]


def looks_ahead(name: str) -> bool:
    """Whether a policy makes use of forecasts."""
    return name in POLICIES and POLICIES[name].looks_ahead


def make_policy(name: str, options: Mapping[str, Any] | None = None, *, own: bool = False) -> Policy:
    """A policy by its name.

    Parameters
    ----------
    name : str
        One of `policy_names`; with `own` also ``file.py:Class`` or ``module:Class``.
    options : mapping, optional
        Its fields by name; texts are taken for what the field needs. Policies that begin with the deployment of another
        one have a field ``start`` with that one's name; default: ``reactive-global``.
    own : bool
        Load ``file.py:Class``, here and in ``start``. Loading runs that code: never set it for names that another
        user or a request chose.

    Raises
    ------
    InputError
        No such policy or option, or a value that the option does not accept.
    """
    given = dict(options or {})
    if own and ":" in name:
        return _built(name, own_policy(name), Known("", ""), given, own)
    if name not in policy_names():
        raise InputError(f"no policy {name!r}: choose one of {', '.join(policy_names())}")
    if name.startswith(STATIC):
        return typing.cast(Policy, _class("reactive.Static")(make_policy(name.removeprefix(STATIC), given, own=own)))
    known = POLICIES[name]
    if name == "hybrid":
        ga = make_policy("ga", given, own=own)
        return typing.cast(Policy, _class(known.place)(ga, make_policy("reactive-global", own=own)))
    return _built(name, _class(known.place), known, given, own)


def _built(name: str, made: Any, known: Known, given: dict[str, Any], own: bool) -> Policy:
    """A policy of a class, with options for its fields."""
    values: dict[str, Any] = dict(known.fixed)
    fields = {field.name for field in dataclasses.fields(made) if field.init} - set(known.fixed)
    if "start" in fields:
        values["start"] = make_policy(str(given.pop("start", "reactive-global")), own=own)
    nested = {} if known.nested is None else {known.nested[0]: _class(known.nested[1])}
    outer = fields - set(nested)
    inner = {field.name for kind in nested.values() for field in dataclasses.fields(kind)}
    unknown = next((option for option in given if option not in outer | inner), None)
    if unknown is not None:
        raise InputError(
            f"policy {name}: no option {unknown!r}; there are: {', '.join(sorted(outer | inner)) or 'none'}"
        )
    values |= {option: _checked(name, made, option, value) for option, value in given.items() if option in outer}
    for field, kind in nested.items():
        chosen = {option: _checked(name, kind, option, value) for option, value in given.items() if option in inner}
        values[field] = kind(**chosen)
    return typing.cast(Policy, made(**values))


def policy_schema(name: str) -> dict[str, Any]:
    """The options of a policy as a JSON schema: types, and defaults where they are plain values.

    Raises
    ------
    InputError
        No such policy.
    """
    if name not in policy_names():
        raise InputError(f"no policy {name!r}: choose one of {', '.join(policy_names())}")
    if name.startswith(STATIC):
        return policy_schema(name.removeprefix(STATIC))
    known = POLICIES["ga"] if name == "hybrid" else POLICIES[name]
    nested = () if known.nested is None else (known.nested[0],)
    kinds = [_class(known.place), *(() if known.nested is None else (_class(known.nested[1]),))]
    found: dict[str, Any] = {}
    for kind in kinds:
        for field in dataclasses.fields(kind):
            if not field.init or field.name in {*known.fixed, *nested}:
                continue
            if field.name == "start":
                found["start"] = {"type": "string", "enum": list(POLICIES), "default": "reactive-global"}
                continue
            found[field.name] = TypeAdapter(_hint(kind, field)).json_schema()
            if isinstance(field.default, bool | int | float | str | None):
                found[field.name]["default"] = field.default
    return {"type": "object", "properties": found, "additionalProperties": False}


def own_policy(place: str) -> Any:
    """The class of a policy of the user's own, ``file.py:Class`` or ``package.module:Class``.

    It is code that runs: only for names that the user has given here, never for those of a request.

    Raises
    ------
    InputError
        If it cannot be loaded, or is no dataclass with the methods of a `Policy`.
    """
    source, _, name = place.rpartition(":")
    try:
        if source.endswith(".py"):
            spec = spec_from_file_location(f"goffish_policy_{Path(source).stem}", source)
            assert spec is not None and spec.loader is not None
            module = module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = import_module(source)
    except (ImportError, OSError, SyntaxError) as error:
        raise InputError(f"policy {place}: cannot be loaded ({type(error).__name__}: {error})") from None
    made = getattr(module, name, None)
    methods = all(callable(getattr(made, method, None)) for method in ("deploy", "adapt"))
    if made is None or not dataclasses.is_dataclass(made) or not methods:
        raise InputError(f"policy {place}: {name} must be a dataclass with the methods deploy and adapt")
    return made


def _checked(policy: str, made: Any, option: str, value: Any) -> Any:
    """A value as the field of a dataclass needs it."""
    field = next(field for field in dataclasses.fields(made) if field.name == option)
    try:
        found = TypeAdapter(_hint(made, field)).validate_python(value)
    except ValidationError as error:
        told = error.errors(include_url=False)[0]["msg"].removeprefix("Input ")
        raise InputError(f"policy {policy}: {option} = {value!r}: {told}") from None
    # The options of the user's own policies may be anything.
    most = math.inf if option == "seed" else _LARGEST
    if policy in policy_names() and isinstance(found, int | float) and not 0 <= found <= most:
        raise InputError(f"policy {policy}: {option} = {value!r}: should be 0 to {most:g}")
    return found


def _hint(made: Any, field: dataclasses.Field[Any]) -> Any:
    """The type of a dataclass's field."""
    owner = SimpleNamespace(__annotations__={field.name: field.type})
    return typing.get_type_hints(owner, vars(sys.modules[made.__module__]))[field.name]


def _class(place: str) -> Any:
    module, name = place.rsplit(".", 1)
    return getattr(import_module(f"{_PACKAGE}.{module}"), name)

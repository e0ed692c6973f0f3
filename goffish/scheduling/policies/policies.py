"""All policies by name, with their options, for the command line and the service."""

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
    """A policy that can be selected by name.

    Attributes
    ----------
    summary : str
        One-line description.
    place : str
        Module and class in this package.
    fixed : mapping
        Options that the name implies.
    forecast : str, optional
        Default forecaster of a policy that uses forecasts (`goffish.scheduling.simulate.scenario.FORECASTS`).
    nested : (str, str), optional
        A field and the Python class of its value, whose fields are also options of the policy.
    """

    summary: str
    place: str
    fixed: Mapping[str, Any] = {}
    forecast: str | None = None
    nested: tuple[str, str] | None = None


_PACKAGE = "goffish.scheduling.policies"
_AVERAGING = "averaging.Averaging"
#: Upper limit of numeric options; seeds may be larger.
_LARGEST = 1e9
POLICIES: dict[str, Known] = {
    "reactive-global": Known(
        "centralized heuristic: alternates by downstream cost, machines repacked (CE)",
        "reactive.Reactive",
        {"variant": "central"},
    ),
    "reactive-local": Known(
        "sharded heuristic: alternates by their own cost, no repacking (SH)",
        "reactive.Reactive",
        {"variant": "sharded"},
    ),
    "reactive-strict": Known(
        "strictly sharded: separate machines and local observations for every processing element",
        "reactive.Reactive",
        {"variant": "strict"},
    ),
    "ga": Known(
        "genetic algorithm in every interval: near-optimal, slow",
        "genetic.Genetic",
        nested=("search", "evolution.Search"),
    ),
    "hybrid": Known("genetic algorithm for the first deployment, then reactive-global", "reactive.Hybrid"),
    "plasticc": Known(
        "look-ahead planning on forecasts: machines, instances and alternates together (PLAStiCC)",
        "plasticc.Plasticc",
        forecast="quantiles",
    ),
    "auto": Known(
        "plasticc or reactive-global, whichever had less regret on recent history",
        "auto.Auto",
        forecast="quantiles",
    ),
    "caf": Known("one-step planning on the last interval", _AVERAGING, {"kind": "CAF"}),
    "waaf": Known("one-step planning on the mean of the last intervals", _AVERAGING, {"kind": "WAAF"}),
    "wpa": Known("one-step planning on the mean of the forecast", _AVERAGING, {"kind": "WPA"}, "smoothing"),
    "wpo": Known("one-step planning on the most optimistic forecast values", _AVERAGING, {"kind": "WPO"}, "smoothing"),
    "wpp": Known("one-step planning on the most pessimistic forecast values", _AVERAGING, {"kind": "WPP"}, "smoothing"),
    "ds2": Known("scaling by true processing rates, in one step (DS2)", "peers.TrueRateScaling"),
    "target-utilisation": Known(
        "scaling to a target utilisation with stabilisation, like Flink's autoscaler", "peers.UtilisationScaling"
    ),
    "threshold": Known("scaling by queue-length thresholds", "peers.QueueScaling"),
    "edrp": Known(
        "replication and placement by integer programming of response time, cost and downtime (EDRP)",
        "edrp.policy.Edrp",
    ),
    "replicate": Known(
        "replicas of another policy's instances on its spare cores, for availability",
        "replication.policy.Replicate",
    ),
    "latency-aware": Known(
        "latency-aware placement of another policy's instances on its machines",
        "latency_aware.policy.LatencyAware",
        nested=("search", "latency_aware.ant_system.Ants"),
    ),
    "btu": Known(
        "use of machines for their paid time, emptied at the end of a billing unit (VISP)",
        "btu.policy.Btu",
        nested=("settings", "btu.model.Settings"),
    ),
}
#: Prefix of a policy name: its first deployment, never adapted.
STATIC = "static-"


def policy_names() -> list[str]:
    """Return all names that `make_policy` accepts."""
    return [*POLICIES, *(STATIC + name for name in ("reactive-global", "reactive-local", "ga"))]


def default_forecast(name: str) -> str | None:
    """Default forecaster of a policy; ``None`` if it uses no forecasts."""
    return POLICIES[name].forecast if name in POLICIES else None


def looks_ahead(name: str) -> bool:
    """Whether a policy uses forecasts."""
    return default_forecast(name) is not None


def make_policy(name: str, options: Mapping[str, Any] | None = None, *, own: bool = False) -> Policy:
    """Create a policy by its name.

    Parameters
    ----------
    name : str
        One of `policy_names`; with `own` also ``file.py:Class`` or ``module:Class``.
    options : mapping, optional
        Values of its fields by name; strings are converted to the type of the field. Policies that build on another
        policy have a field ``start`` with its name; default: ``reactive-global``.
    own : bool
        Load ``file.py:Class``, here and in ``start``. Loading runs that code: never set this for names chosen by
        another user or by a request.

    Raises
    ------
    InputError
        If the policy or an option is unknown, or a value is invalid.
    """
    given = dict(options or {})
    if own and ":" in name:
        return _built(name, own_policy(name), Known("", ""), given, own)
    if name not in policy_names():
        raise InputError(f"unknown policy {name!r}: choose one of {', '.join(policy_names())}")
    if name.startswith(STATIC):
        return typing.cast(Policy, _class("reactive.Static")(make_policy(name.removeprefix(STATIC), given, own=own)))
    known = POLICIES[name]
    if name == "hybrid":
        ga = make_policy("ga", given, own=own)
        return typing.cast(Policy, _class(known.place)(ga, make_policy("reactive-global", own=own)))
    return _built(name, _class(known.place), known, given, own)


def _built(name: str, made: Any, known: Known, given: dict[str, Any], own: bool) -> Policy:
    """Create a policy from its Python class, with options for its fields."""
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
            f"policy {name}: unknown option {unknown!r}; accepted: {', '.join(sorted(outer | inner)) or 'none'}"
        )
    values |= {option: _checked(name, made, option, value) for option, value in given.items() if option in outer}
    for field, kind in nested.items():
        chosen = {option: _checked(name, kind, option, value) for option, value in given.items() if option in inner}
        values[field] = kind(**chosen)
    return typing.cast(Policy, made(**values))


def policy_schema(name: str) -> dict[str, Any]:
    """Return the options of a policy as a JSON schema: types, and defaults if they are plain values.

    Raises
    ------
    InputError
        If the policy is unknown.
    """
    if name not in policy_names():
        raise InputError(f"unknown policy {name!r}: choose one of {', '.join(policy_names())}")
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
    """Load the Python class of a custom policy, ``file.py:Class`` or ``package.module:Class``.

    Loading runs the code: only use it for names from the local user, never for names from a request.

    Raises
    ------
    InputError
        If it cannot be loaded, or is not a dataclass with the methods of a `Policy`.
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
    """Convert a value to the type of a dataclass field."""
    field = next(field for field in dataclasses.fields(made) if field.name == option)
    try:
        found = TypeAdapter(_hint(made, field)).validate_python(value)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Input ")
        raise InputError(f"policy {policy}: {option} = {value!r}: {reason}") from None
    # Options of custom policies may have any value.
    most = math.inf if option == "seed" else _LARGEST
    if policy in policy_names() and isinstance(found, int | float) and not 0 <= found <= most:
        raise InputError(f"policy {policy}: {option} = {value!r}: must be 0 to {most:g}")
    return found


def _hint(made: Any, field: dataclasses.Field[Any]) -> Any:
    """Return the type of a dataclass field."""
    owner = SimpleNamespace(__annotations__={field.name: field.type})
    return typing.get_type_hints(owner, vars(sys.modules[made.__module__]))[field.name]


def _class(place: str) -> Any:
    module, name = place.rsplit(".", 1)
    return getattr(import_module(f"{_PACKAGE}.{module}"), name)

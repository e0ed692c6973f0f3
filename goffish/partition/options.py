"""The options of every partitioning method, one typed model each: the command line and the job message use
them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from goffish.errors import InputError


def _as_numbers(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError("or an array of numbers")
    import numpy as np  # late: the command line makes its flags from these models

    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise ValueError("or an array of numbers")
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


Numbers = Annotated[
    Any,
    BeforeValidator(_as_numbers),
    WithJsonSchema({"type": "array", "items": {"type": "number"}}),
]
Seed = Annotated[int, Field(ge=0, lt=2**31, strict=True, description="Random seed.")]


class MethodOptions(BaseModel):
    """Base of the option models: unknown names are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True)


class MetisOptions(MethodOptions):
    """Multilevel minimum cut by METIS (Karypis & Kumar 1998)."""

    recursive: bool = Field(
        default=False,
        description="Use recursive bisection instead of k-way partitioning; often a better cut for few parts.",
    )
    vertex_weights: Literal["one", "degree"] | Numbers = Field(
        default="one",
        description="Quantity to balance: vertices (one), 1 + degree (degree), or one number per vertex.",
    )
    edge_weights: Literal["none", "weight"] | Numbers = Field(
        default="none",
        description="Cost of a cut edge: 1 (none), its weight (weight), or one number per arc.",
    )
    imbalance: float = Field(
        default=1.03, ge=1.0, le=1000.0, description="Maximum size of a part, as a multiple of the mean."
    )
    objective: Literal["cut", "volume"] = Field(
        default="cut", description="Minimize cut edges, or the total communication volume (k-way only)."
    )
    contiguous: bool = Field(
        default=False, description="Make every part connected (k-way only; requires a connected graph)."
    )
    min_connectivity: bool = Field(
        default=False, description="Also minimize the number of neighbors of each part (k-way only)."
    )
    part_shares: Numbers | None = Field(
        default=None,
        description="Target share of each part, one positive number per part [default: equal parts].",
    )
    iterations: int = Field(default=10, ge=1, le=10_000, description="Number of refinement passes on each level.")
    cuts: int = Field(default=1, ge=1, le=1_000, description="Number of partitionings to compute; the best is kept.")
    seed: Seed = 0

    @model_validator(mode="after")
    def _kway_only(self) -> MetisOptions:
        for name, set_ in (
            ("contiguous=True", self.contiguous),
            ("min_connectivity=True", self.min_connectivity),
            ("objective='volume'", self.objective == "volume"),
        ):
            if self.recursive and set_:
                raise ValueError(f"{name} requires k-way partitioning; omit recursive=True")
        return self


class HashOptions(MethodOptions):
    """Every vertex by a fixed hash of its number: no locality, no computation."""

    seed: Seed = 0


class RangeOptions(MethodOptions):
    """Contiguous ranges of vertex numbers."""

    balance: Literal["vertices", "edges"] = Field(
        default="vertices", description="Balance the numbers of vertices, or of arcs, of the ranges."
    )


class _StreamOptions(MethodOptions):
    order: Literal["natural", "random", "bfs", "degree"] = Field(
        default="natural",
        description="Order of arrival: by number, shuffled, breadth first, or highest degree first.",
    )
    passes: int = Field(
        default=1,
        ge=1,
        le=1_000,
        description="Number of passes over the vertices; later passes reassign them.",
    )
    seed: Seed = 0


class LdgOptions(_StreamOptions):
    """Linear deterministic greedy, one pass (Stanton & Kliot 2012)."""

    imbalance: float = Field(
        default=1.0, ge=1.0, le=1000.0, description="Capacity of a part, as a multiple of n / parts."
    )


class FennelOptions(_StreamOptions):
    """Fennel, one pass (Tsourakakis et al. 2014)."""

    imbalance: float = Field(
        default=1.1,
        ge=1.0,
        le=1000.0,
        description="Capacity of a part (nu in the paper), as a multiple of n / parts.",
    )
    gamma: float = Field(default=1.5, gt=1.0, le=10.0, description="Exponent of the load penalty.")


def _check_assignment(value: Any) -> Any:
    if isinstance(value, str | PathLike | Mapping) or hasattr(value, "__len__"):
        return value
    raise ValueError("must be a path, an array with one part number per vertex, or a mapping of label to part")


class PredefinedOptions(MethodOptions):
    """An assignment that already exists."""

    assignment: Annotated[Any, WithJsonSchema({"type": "string"}), BeforeValidator(_check_assignment)] = Field(
        description="File with the columns label and part (text, CSV, Parquet), or with one part number "
        "per line (METIS .part.K); in Python also an array or a mapping of label to part."
    )


#: Option model of every method.
OPTIONS: dict[str, type[MethodOptions]] = {
    "metis": MetisOptions,
    "hash": HashOptions,
    "range": RangeOptions,
    "ldg": LdgOptions,
    "fennel": FennelOptions,
    "predefined": PredefinedOptions,
}


def check_options(method: str, options: Mapping[str, Any]) -> MethodOptions:
    """Options of `method` as its model; anything unknown or ill-typed raises `InputError` in one line."""
    if method not in OPTIONS:
        raise InputError(f"unknown partitioning method {method!r}: choose one of {', '.join(OPTIONS)}")
    model = OPTIONS[method]
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        problems: dict[str, list[str]] = {}
        for item in error.errors(include_url=False, include_context=False):
            name = str(item["loc"][0]) if item["loc"] else ""
            if item["type"] == "extra_forbidden":
                text = f"unknown; {method} accepts {', '.join(model.model_fields)}"
            else:
                text = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
            problems.setdefault(name, []).append(text)
        found = "; ".join(
            f"option {name}={_short(options[name])}: {', '.join(texts)}"
            if name in options
            else f"{f'option {name}: ' if name else ''}{', '.join(texts)}"
            for name, texts in problems.items()
        )
        raise InputError(f"partitioning method {method}: {found}") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"

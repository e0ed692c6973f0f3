"""What every algorithm states about itself: name, options, and how it is answered.

Importing an option model is cheap: kernels and Arrow are loaded by the algorithm that needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema

from goffish.definitions import KnownName, Marked, NamesFile
from goffish.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from goffish.gofs import PartitionedGraph
    from goffish.gopher import Result, RunStats, SubgraphProgram
    from goffish.graph import Graph


def _checked_label(value: Any) -> int | str:
    if isinstance(value, str):
        return value
    if not isinstance(value, bool) and isinstance(value, Integral):
        return int(value)
    raise ValueError("must be a vertex label: an integer or a string")


def _as_table(value: Any) -> Any:
    if isinstance(value, str | Path):
        from goffish.gopher.result import check_readable

        check_readable(value)
    return value


#: A table, or the file of one.
TableFile = Annotated[
    Any, BeforeValidator(_as_table), NamesFile(), WithJsonSchema({"type": "string", "format": "path"})
]

#: Called now and then with a line of text on how far long work is.
Note = Callable[[str], None]

#: A text that is compared with names: of vertices, of attributes, or of parts of an algorithm.
Name = Annotated[str, KnownName()]
Label = Annotated[int | str, BeforeValidator(_checked_label), KnownName()]


def as_label(text: str, graph: Graph | PartitionedGraph) -> int | str:
    """A vertex label given as a text, in the type of the graph's labels."""
    from goffish.graph import Graph

    if isinstance(graph, Graph):
        textual = graph.labels is not None and str(graph.labels.type) == "string"
    else:
        textual = graph.info.label_type == "string"
    if textual:
        return text
    try:
        number = int(text)
    except ValueError:
        raise InputError(f"unknown vertex {text!r}: the vertex labels of this graph are integers") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise InputError(f"unknown vertex {text}: the vertex labels of this graph are 64-bit integers")
    return number


class Options(BaseModel):
    """Base of what has a name, and options that are its fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: ClassVar[str]
    title: ClassVar[str]

    @classmethod
    def checked(cls, **options: Any) -> Self:
        """An instance.

        Raises
        ------
        InputError
            Unknown option, or a value out of range; one line that says what is accepted.
        """
        try:
            return cls(**options)
        except ValidationError as error:
            raise InputError(f"{cls.name}: {_described(error, options, cls.model_fields)}") from None


class Algorithm(Options, Marked):
    """Base of all algorithms.

    Attributes
    ----------
    name, title : str
        What users type, and one line of help.
    undirected : bool
        The algorithm ignores directions, so a directed graph is made undirected first.
    parallel : {"min", "sum"}
        Weight of the edge that then replaces the arcs between two vertices.
    in_memory : bool
        No engine answers the algorithm: a partitioned graph is put together in memory for it.
    final_table : bool
        The program gives the final table, so that ranks can write its rows without bringing them together.
    one_thread : bool
        The kernel for a whole graph has no use for more threads.
    extra_tables : mapping of str to str
        Further tables that a result holds, and a line of help for each.
    """

    undirected: ClassVar[bool] = False
    parallel: ClassVar[Literal["min", "sum"]] = "min"
    in_memory: ClassVar[bool] = False
    final_table: ClassVar[bool] = True
    one_thread: ClassVar[bool] = False
    extra_tables: ClassVar[Mapping[str, str]] = {}

    def program(self, graph: PartitionedGraph) -> SubgraphProgram:
        """The program for an engine that runs it on this graph."""
        raise InputError(f"{self.name} does not run on the engine")

    def needs_engine(self) -> bool:
        """Whether these options (or the algorithm) are answered by the engine only."""
        return False

    def single_threaded(self) -> str | None:
        """What in these options makes `whole` use one thread; `None` where it shares its work among `threads`."""
        return f"{self.name} in memory" if self.one_thread else None

    def only_whole(self) -> list[str]:
        """Names of the options given that no engine can follow: `whole` answers them."""
        return []

    def whole(self, graph: Graph, threads: int | None, note: Note | None = None) -> Result:
        """Answer on a whole graph in memory, without the engine; long work reports its progress to `note`."""
        raise InputError(f"{self.name} runs only on the engine")

    def resumes_whole(self) -> bool:
        """Whether `whole` with these options can keep what it has in a folder and go on from there."""
        return False

    def whole_resumable(
        self, graph: Graph, threads: int | None, note: Note | None, checkpoint_dir: str, resume: bool
    ) -> Result:
        """As `whole`, keeping what it has in a folder."""
        raise InputError(f"{self.name} writes checkpoints only on the engine")

    def labels(self) -> list[int | str]:
        """Vertex labels among the options, to be checked before the job starts."""
        return []

    def finish(self, table: pa.Table, stats: RunStats) -> tuple[pa.Table, dict[str, Any]]:
        """Final table and summary from the engine's table and counters."""
        return table, {}

    def conclude(self, graph: PartitionedGraph, table: pa.Table, stats: RunStats, note: Note | None = None) -> Result:
        """The result from the engine's table and counters."""
        from goffish.gopher import Result

        table, summary = self.finish(table, stats)
        return Result(self.name, table, summary, stats)

    def write_extra(self, result: Any, name: str, path: str) -> None:
        """Write one of `extra_tables` of a result."""
        raise InputError(f"{self.name} has no table {name!r}")


def _described(error: ValidationError, options: Mapping[str, Any], known: Any) -> str:
    """A pydantic error as one line."""
    problems = []
    for item in error.errors(include_url=False, include_context=False):
        option = str(item["loc"][0]) if item["loc"] else ""
        if item["type"] == "extra_forbidden":
            problems.append(f"unknown option {option!r}; accepted: {', '.join(known) or 'none'}")
        elif item["type"] == "missing":
            problems.append(f"option {option!r} is required")
        else:
            problem = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
            problems.append(f"{option}={options.get(option)!r} {problem}" if option else problem)
    return "; ".join(dict.fromkeys(problems))

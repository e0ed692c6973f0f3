"""Options of commands with graph queries, and what they stand for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from goffish.cli.checks import check_choice, name_values
from goffish.cli.inputs import duration
from goffish.errors import InputError
from goffish.partial import local_path

if TYPE_CHECKING:
    from goffish.streaming.graphs.live import LiveGraph

#: Heading of the options of graph queries.
QUERIES = "Graph queries"
SUFFIX = ".cgql"
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="Value of a word or of $NAME in graph queries; repeatable.", rich_help_panel=QUERIES
    ),
]
VocabularyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="File of words for predicates, with lines such as friend: {type = friend}; repeatable.",
        show_default="none",
        rich_help_panel=QUERIES,
    ),
]
DeliverOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[TOPIC=]TARGET",
        help="Target of events, such as parquet:DIR, kafka:SERVERS/TOPIC or https://HOST/PATH; repeatable.",
        show_default="none",
        rich_help_panel=QUERIES,
    ),
]
LatenessOption = Annotated[
    float,
    typer.Option(
        **duration("s"),
        help="How much later than others records may come; numbers are seconds.",
        rich_help_panel=QUERIES,
    ),
]
LateOption = Annotated[
    str,
    typer.Option(
        help="What becomes of late records: side (counted and reported), apply or drop.", rich_help_panel=QUERIES
    ),
]
TombstoneOption = Annotated[
    float,
    typer.Option(
        **duration("s"),
        help="With --late apply, how late records are that are applied, at most; numbers are seconds.",
        show_default="1h",
        rich_help_panel=QUERIES,
    ),
]
RetentionOption = Annotated[
    float,
    typer.Option(
        **duration("s"),
        help="Event time for which the log is kept in --state; numbers are seconds.",
        show_default="7d",
        rich_help_panel=QUERIES,
    ),
]
_LINE = re.compile(r"\s*(\w+)\s*:\s*(\{.*\})\s*")


class GraphOptions(NamedTuple):
    """Options of the live graph of a command.

    Attributes
    ----------
    lateness : float
        Seconds.
    late : str
        Policy for late records.
    tombstone_ttl : float
        Seconds by which late records that are applied are late at most.
    state : str, optional
        Folder of the live graph; a run resumes where an earlier one ended.
    retention : float
        Seconds of the log that are kept in it.
    """

    lateness: float = 5.0
    late: str = "side"
    tombstone_ttl: float = 3600.0
    state: str | None = None
    retention: float = 604_800.0

    def open(self) -> LiveGraph:
        """Return the live graph.

        Raises
        ------
        InputError
            An option is not accepted.
        """
        from goffish.streaming.graphs.live import LiveGraph
        from goffish.streaming.graphs.updates import LATE

        check_choice("late", self.late, LATE)
        return LiveGraph(**self._asdict())


class QueryFile(NamedTuple):
    """A file of queries, with what it depends on.

    Attributes
    ----------
    path : str
    param : sequence of str, optional
        ``NAME=VALUE``.
    vocabularies : sequence of str, optional
        Files of words, whose names are those of the vocabularies.
    """

    path: str
    param: Sequence[str] | None = None
    vocabularies: Sequence[str] | None = None

    def add_words(self, live: LiveGraph) -> None:
        """Add the vocabularies to a live graph, also for queries that are submitted later.

        Raises
        ------
        InputError
            A file cannot be read, or a line is not accepted.
        """
        for path in self.vocabularies or ():
            words: dict[str, str] = {}
            for number, line in enumerate(_text(path).splitlines(), 1):
                if not line.strip() or line.lstrip().startswith("#"):
                    continue
                found = _LINE.fullmatch(line)
                if found is None or found[1] in words:
                    twice = "" if found is None else f"word {found[1]} is there twice; "
                    raise InputError(
                        f"{path}, line {number}: {twice}accepted are lines such as friend: {{type = friend}}"
                    )
                words[found[1]] = found[2]
            try:
                live.add_vocabulary(Path(path).stem, words)
            except InputError as error:
                raise InputError(f"--vocabulary {path}: {error}") from None

    def submit(self, live: LiveGraph) -> list[str]:
        """Submit the queries; return their topics.

        Raises
        ------
        InputError
            A file cannot be read, or the queries are not accepted.
        """
        from goffish.streaming.graphs.cgql.syntax import CgqlError

        try:
            return live.submit(_text(self.path), _parameters(self.param))
        except CgqlError as error:
            raise InputError(f"{self.path}, {error}") from None

    def understood(self) -> dict[str, str]:
        """Return the queries by topic, as they are understood.

        Raises
        ------
        InputError
            A file cannot be read, or the queries are not accepted.
        """
        from goffish.streaming.graphs.live import LiveGraph

        live = LiveGraph()
        self.add_words(live)
        return {topic: live.query(topic) for topic in self.submit(live)}


def _text(path: str) -> str:
    try:
        return local_path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text in UTF-8") from None


def _parameters(given: Sequence[str] | None) -> dict[str, Any]:
    """Return parameters: numbers, true and false, or texts."""
    found: dict[str, Any] = {}
    for name, text in name_values(list(given or ()), "--param").items():
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found

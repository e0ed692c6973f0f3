"""Working out what the columns of an edge list are, from its first lines."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field

from goffish.errors import FormatError, InputError
from goffish.graph.io import kernels as k
from goffish.graph.io.options import ReadOptions
from goffish.graph.io.table import Layout

_INTEGER = re.compile(r"[+-]?[0-9]+$")
_NAMED = {
    "source": "source src from fromnodeid from_node from_id u node1 node_1 id1 id_1 start tail sender",
    "target": "target dst dest to tonodeid to_node to_id v node2 node_2 id2 id_2 end head receiver",
    "weight": "weight weights w length distance dist cost strength length(degrees)",
    "timestamp": "timestamp time t ts unixts unix_seconds date datetime",
}
_ROLE_OF = {name: role for role, names in _NAMED.items() for name in names.split()}
_KINDS = {"source": k.SOURCE, "target": k.TARGET, "weight": k.WEIGHT, "timestamp": k.STAMP}
_ROWS = 20
_KONECT = re.compile(r"%\s*(sym|asym|bip)\s+(\w+)")


@dataclass
class Head:
    """The first lines: comments, and the fields of the first data lines with their line numbers."""

    comments: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    separator: str | None = None


def split_head(lines: list[str], options: ReadOptions, suffix: str) -> Head:
    """Sort the first lines into comments and rows, and find the separator."""
    head = Head(separator=options.separator)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if line.lstrip(" \t")[:1] in options.comments:
            head.comments.append(line.strip())
            continue
        if not head.rows and head.separator is None:
            head.separator = _find_separator(line, suffix, head)
        head.rows.append(_fields(line, head.separator))
        head.numbers.append(number)
        if len(head.rows) == _ROWS:
            break
    return head


def _find_separator(line: str, suffix: str, head: Head) -> str | None:
    tabbed = "\t" in line
    if tabbed and (suffix == ".tsv" or _names_of(head.comments, "\t")):
        return "\t"
    for separator in ",;|":
        if separator in line:
            return separator
    # A tab separates alone when blanks may be part of a name; otherwise tabs and blanks mix freely.
    return "\t" if tabbed and not all(_INTEGER.match(f) for f in line.split()[:2]) else None


def _fields(line: str, separator: str | None) -> list[str]:
    if separator is None:
        return line.split()
    line = line.strip("\r\n").replace("\r", " ")
    try:
        return [f.strip() for f in next(csv.reader([line], delimiter=separator))]
    except csv.Error:  # a field too long for it; this is only to find the columns
        return [f.strip() for f in line.split(separator)]


def has_header(head: Head, options: ReadOptions) -> bool:
    """Whether the first data line names the columns."""
    if options.header is not None:
        return options.header
    first = head.rows[0]
    wanted = [column for column in options.columns.values() if isinstance(column, str)]
    if wanted and not _comment_names(head):
        return set(wanted) <= set(first)
    if any(_is_number(f) for f in first) or not all(first[:2]):
        return False
    if [role_of(name) for name in first][:2] == ["source", "target"]:
        return True
    # names above numbers, in every line looked at: one line alone may have a number among string ids
    return len(head.rows) > 1 and any(
        all(column < len(row) and _is_number(row[column]) for row in head.rows[1:]) for column in range(len(first))
    )


def role_of(name: str) -> str | None:
    """The role that a column's name suggests."""
    return _ROLE_OF.get(name.lower())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _comment_names(head: Head) -> list[str]:
    """Column names from the last comment, as in SNAP's ``# FromNodeId  ToNodeId``."""
    for separator in (head.separator, None):
        names = _names_of(head.comments, separator)
        if names and len(names) == len(head.rows[0]):
            return names
    # a description may come before the names
    return _names_of([c.rpartition(";")[2] for c in head.comments], None)


def _names_of(comments: list[str], separator: str | None) -> list[str]:
    if not comments:
        return []
    names = [name.strip() for name in comments[-1].lstrip("#%/ \t").split(separator)]
    roles = [role_of(name) for name in names]
    return names if "source" in roles and "target" in roles else []


def find_layout(name: str, head: Head, options: ReadOptions) -> Layout:
    """Decide which column is what.

    Explicit `columns` win, then names (in a header line or in the last comment), then positions: source,
    target, weight, timestamp, as far as the first data line holds numbers there.
    """
    header = has_header(head, options)
    names = head.rows[0] if header else _comment_names(head)
    skip = head.numbers[0] if header else 0
    data = head.rows[1:] if header else head.rows
    if not data:
        raise FormatError(name, None, "no edges found: the file contains only a header line")
    first = data[0]
    place = _explicit(name, options, names, len(first))
    taken = set(place.values())
    for index, column in enumerate(names):
        role = role_of(column)
        if role is not None and role not in place and index not in taken and index < len(first):
            place[role] = index
            taken.add(index)
    for role in ("source", "target"):
        if role not in place:
            place[role] = next(i for i in range(len(first) + 2) if i not in place.values())
    if max(place["source"], place["target"]) >= len(first):
        raise FormatError(
            name,
            head.numbers[int(header)],
            "expected at least two columns, source and target",
            " ".join(first),
        )
    if not options.columns and not any(role_of(n) for n in names):
        _by_position(name, place, first, head, options, int(header))
    if options.weighted is False:
        place.pop("weight", None)
    elif options.weighted and "weight" not in place:
        raise FormatError(name, None, "weighted=True: no weight column found; select it with columns")
    kinds = [k.SKIP] * (max(place.values()) + 1)
    for role, index in place.items():
        kinds[index] = _KINDS[role]
    return Layout(
        kinds=tuple(kinds),
        separator=head.separator,
        comments=options.comments,
        skip=skip,
        as_text=not all(_INTEGER.match(first[place[role]]) for role in ("source", "target")),
        exact=len(kinds) == len(first),
        real_stamp="timestamp" in place and not _INTEGER.match(first[place["timestamp"]]),
    )


def _explicit(name: str, options: ReadOptions, names: list[str], width: int) -> dict[str, int]:
    place: dict[str, int] = {}
    for role, wanted in options.columns.items():
        if isinstance(wanted, str):
            if wanted not in names:
                known = ", ".join(names) or "none (the file has no header)"
                raise InputError(f"{name}: no column {wanted!r} for {role}; the columns are {known}")
            place[role] = names.index(wanted)
        else:
            place[role] = int(wanted)
        if not 0 <= place[role] < width:
            raise InputError(f"{name}: columns[{role!r}] = {wanted!r}, but the first data line has {width} columns")
    if len(set(place.values())) < len(place):
        raise InputError(f"{name}: columns assigns two roles to one column")
    return place


def _by_position(
    name: str, place: dict[str, int], first: list[str], head: Head, options: ReadOptions, row: int
) -> None:
    free = [i for i in range(len(first)) if i not in place.values()]
    # networkx ends lines with the attribute dictionary; an empty one says nothing
    if not free or options.weighted is False or first[free[0]] in ("{}", ""):
        return
    if not _is_number(first[free[0]]):
        raise FormatError(
            name,
            head.numbers[row],
            f"column {free[0] + 1} is not a number; ignore it with weighted=False, or assign it with columns",
            first[free[0]],
        )
    place["weight"] = free[0]
    if len(free) > 1 and _is_number(first[free[1]]):
        place["timestamp"] = free[1]


def directed_by_comments(name: str, comments: list[str]) -> bool:
    """What the header comments of SNAP, KONECT and our own writer say; undirected where they say nothing."""
    for comment in comments:
        konect = _KONECT.match(comment)
        if konect:
            if konect[1] == "bip":
                raise FormatError(
                    name,
                    None,
                    "bipartite KONECT networks number both sides from 1; make the ids distinct first",
                    comment,
                )
            return bool(konect[1] == "asym")
        words = re.findall(r"[a-z]+", comment.lower())
        for word in words:
            if word in ("directed", "undirected"):
                return bool(word == "directed")
    return False

"""How queries are evaluated, for readers."""

from __future__ import annotations

from collections.abc import Iterable

from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.patterns import Pattern, predicates_of


def plan_of(query: syntax.Query, pattern: Pattern, statuses: Iterable[str], *, sleeps: bool) -> dict[str, str]:
    """Return the steps from records to events, by name.

    Parameters
    ----------
    query : Query
        Checked.
    pattern : Pattern
    statuses : iterable of str
        Those that are published.
    sleeps : bool
        Whether records that change nothing of what it sees pass it by.
    """
    nodes = [*predicates_of(query.where, "node", "vertex"), *pattern.narrowed]
    steps = {"vertices": _text(nodes) or "all"}
    if pattern.sees_edges:
        edges = [*predicates_of(query.where, "edge"), *predicates_of(query.arguments, "edge")]
        steps["edges"] = (_text(edges) or "all") + (" at both ends in these" if nodes else "")
        if query.window is not None:
            steps["edges"] += f", for {query.window} after they were last seen"
    texts = {role: _text(pattern.predicates(role)) for role in pattern.roles}
    steps |= {role: text for role, text in texts.items() if text}
    measured = [f"node.{name}" for name in pattern.measured] + [f"edge.{name}" for name in pattern.measured_of_edges]
    if measured:
        steps["attributes"] = ", ".join(measured)
    steps["operator"] = pattern.operator
    temporal = [str(one) for one in query.where if isinstance(one, syntax.Temporal | syntax.Ordered)]
    if temporal:
        steps["constraints"] = " and ".join(temporal)
    steps["compared"] = "after each record" if query.every is None else f"every {query.every}"
    steps["events"] = ", ".join(statuses)
    steps["evaluated"] = "for changes of what it sees" if sleeps else "for all records, as time or other topics count"
    return steps


def _text(parts: list[syntax.Predicates]) -> str:
    return " and ".join(str(one) for one in parts if one.parts)

"""From the text of queries to their parts."""

from __future__ import annotations

import re

from goffish.streaming.graphs.cgql import syntax
from goffish.streaming.graphs.cgql.match import read_match
from goffish.streaming.graphs.cgql.reading import Builder, read
from goffish.streaming.graphs.cgql.syntax import CgqlError

#: How patterns of openCypher begin.
_MATCH = r"(\s|//[^\n]*\n)*(OPTIONAL\s+)?MATCH\b"


def parse(text: str) -> syntax.Script:
    """Read queries.

    Parameters
    ----------
    text : str
        Statements, separated by semicolons, or a pattern of openCypher that begins with MATCH.

    Returns
    -------
    Script

    Raises
    ------
    CgqlError
        The text is not accepted; names line, column and what is.

    Examples
    --------
    >>> print(parse("detect Degree(degree >= 3) where edge:{flow} as busy"))
    DETECT Degree(degree >= 3) WHERE edge:{flow} AS busy
    """
    if re.match(_MATCH, text, re.IGNORECASE):
        return read_match(text)
    if not text.strip():
        raise CgqlError("no query; expected DETECT, MATCH or CANCEL", (1, 1))
    found: syntax.Script = read(text, "grammar.lark", Builder(), {})
    return found

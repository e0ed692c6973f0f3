"""Which format a file has: by its name, then by its first bytes."""

from __future__ import annotations

import re

from goffish.errors import FormatError, InputError
from goffish.graph.io.streams import Source

FORMATS = ("edges", "metis", "mtx", "dimacs", "parquet", "arrow", "csr", "graphml", "gml")

_BY_SUFFIX = {
    **dict.fromkeys(("txt", "csv", "tsv", "edges", "edgelist", "el", "wel", "ncol", "snap", "dat", "tab"), "edges"),
    **dict.fromkeys(("metis", "graph"), "metis"),
    "mtx": "mtx",
    **dict.fromkeys(("gr", "col"), "dimacs"),
    **dict.fromkeys(("parquet", "pq"), "parquet"),
    **dict.fromkeys(("arrow", "ipc", "feather"), "arrow"),
    "csr": "csr",
    "graphml": "graphml",
    "gml": "gml",
}
_BY_CONTENT = (
    (re.compile(rb"PAR1"), "parquet"),
    (re.compile(rb"ARROW1"), "arrow"),
    (re.compile(rb"(\xef\xbb\xbf)?%%MatrixMarket", re.I), "mtx"),
    (re.compile(rb"(\xef\xbb\xbf)?\s*<(\?xml|graphml)"), "graphml"),
    (re.compile(rb"(\s*(#.*|Creator.*|Version.*)\r?\n)*\s*graph\s*\[", re.I), "gml"),
    (re.compile(rb"(c\b.*\r?\n)*p[ \t]+(sp|edge|edges|col)\b"), "dimacs"),
)
_TWO_IDS = re.compile(rb"[ \t]*[+-]?\d+[ \t]*[ \t,;|][ \t]*[+-]?\d+[ \t,;|\r\n]")


def name_suffix(name: str) -> str:
    """Last suffix, lower case, without the dot and below a compression suffix."""
    base = re.sub(r"\.(gz|bz2|zst)$", "", re.split(r"[?#]", name)[0] if "://" in name else name, flags=re.I)
    base = base.rsplit("/", 1)[-1]
    if base.startswith("out."):  # KONECT
        return "txt"
    return base.rpartition(".")[2].lower() if "." in base else ""


def find_format(source: Source, wanted: str) -> str:
    """The format of a file: `wanted` itself unless it is ``auto``."""
    if wanted != "auto":
        if wanted not in FORMATS:
            raise InputError(f"format={wanted!r}: choose one of auto, {', '.join(FORMATS)}")
        return wanted
    named = _BY_SUFFIX.get(name_suffix(source.name))
    if named is not None and named != "edges":
        return named
    head = source.head(1 << 16)
    for pattern, format in _BY_CONTENT:
        if pattern.match(head):
            return format
    if named is None and not _looks_like_edges(head):
        raise FormatError(
            source.name, None, f"unknown format; set format to one of {', '.join(FORMATS)}, or use a known suffix"
        )
    return "edges"


def format_of_name(name: str, wanted: str) -> str:
    """The format to write under a name."""
    if wanted != "auto" and wanted not in FORMATS:
        raise InputError(f"format={wanted!r}: choose one of auto, {', '.join(FORMATS)}")
    format = _BY_SUFFIX.get(name_suffix(name)) if wanted == "auto" else wanted
    if format is None:
        suffixes = ".txt, .csv, .tsv, .metis, .mtx, .parquet, .arrow, .csr, .graphml, .gml"
        raise InputError(f"{name}: unknown suffix; use one of {suffixes}, or set format")
    return format


def _looks_like_edges(head: bytes) -> bool:
    """Whether some line among the first is two integers: enough for a name that says nothing."""
    lines = [line for line in head.split(b"\n") if line.strip() and line.lstrip()[:1] not in (b"#", b"%")]
    return not lines or any(_TWO_IDS.match(line + b"\n") for line in lines[:2])

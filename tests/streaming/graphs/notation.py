"""Records as they are written in the specification: ``12 +e e1 a b type=follow``, with times in seconds."""

from __future__ import annotations

from typing import Any


def value_of(text: str) -> Any:
    if text.startswith("["):
        return [value_of(part) for part in text[1:-1].split("|")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def record(line: str) -> dict[str, Any]:
    """Return the record of a line, with ``#`` and its sequence number at the front if it has one."""
    words = line.split()
    found: dict[str, Any] = {"seq": int(words.pop(0)[1:])} if words[0].startswith("#") else {}
    time, op, *words = words
    found |= {"t": float(time), "op": op}
    plain = [word for word in words if "=" not in word]
    attributes = {word.split("=")[0]: value_of(word.split("=")[1]) for word in words if "=" in word}
    found |= dict(zip(("id", "src", "dst") if op == "+e" else ("id",), plain, strict=False))
    if op in ("-av", "-ae"):
        found["names"] = plain[1:]
    return found | ({"attrs": attributes} if attributes else {})


def records(text: str) -> list[dict[str, Any]]:
    return [record(line) for line in text.strip().splitlines()]

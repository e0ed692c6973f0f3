"""Words of user-visible text: docstrings, messages, help, pages and documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from goffish.algorithms.catalogue import ALGORITHMS
from goffish.cli.app import app
from goffish.cli.options import _FLAGS
from goffish.partition.options import OPTIONS
from goffish.temporal.options import APPLICATIONS
from tests.commands import subcommands
from tests.package.pages import ROOT

#: A pattern, and what to write instead.
WORDS = {
    r"\b(?:tells?|telling|told)\b": "report, print, return, log",
    r"\b(?:whoever|somebody|nobody|anybody)\b": "the subject: you, the client, the caller",
    r"\bfor ever\b": "indefinitely",
    r"\b(?:comes?|that came) along\b|\bshipped\b": "bundled",
    r"\bcomes? again\b": "retry later",
    r"\b(?:can(?:not)?|to) be had\b": "is (not) available",
    r"\bsub-graphs?\b": "subgraph",
    r"(?<!\.)\bpeers?\b(?!\()": "baseline",
    r"\brooms?\b": "space, package",
    r"(?<!you )\bwants?\b": "needs, requires, asks for",
    r"\bknows?\b": "the fact itself",
    r"\btaken away\b": "interrupted, reclaimed",
    r"\bhang(?:s|ing)? up\b": "close the channel",
    r"\bgoes? on with\b": "resume",
    r"\bof its own\b": "its own …, separate",
    r"\b(?:what|that) is there\b|\bthat are there\b": "existing",
    r"\bplanners? of places\b": "placement algorithm",
    r"\bno time at all\b": "must be positive",
    r"\bmachine class(?:es)?\b": "machine type",
    r"\bfor want of\b": "because of missing",
    r"(?<!\.)\b(?:colour(?! =)|neighbour|behaviour|favour|label(?:led|ling)|analyse\b)\w*": "American spelling",
    r"(?<!\.)\b(?:normal|optim|summar|initial|serial)is(?!t)\w*": "American spelling",
    r"\bcomes? (?:of|to) (?:it|them|its end)\b": "result, complete",
}
#: Words of dataflows, which are ordinary words elsewhere.
DATAFLOW_WORDS = {r"(?<!processing )(?<!array )(?<!matrix )\belements?\b(?! wise)": "processing element (PE)"}
#: Recurring phrases of the former texts of the service and the command line.
SERVICE_WORDS = {
    r"\b(?:goes?|going|went) on (?:from|with|at|behind|as|where|by themselves)\b": "resume, continue",
    r"\banew\b": "again",
    r"\b(?:gives?|given) back\b": "release",
    r"\b(?:it|job|jobs) (?:is|are) over\b|\bthat (?:is|are) over\b": "has ended",
    r"\blook(?:s|ed|ing)? after\b": "monitor, supervise",
    r"\bas it stands\b": "current state",
    r"\bfrom then on\b|\bwhatever happens\b": "the fact itself",
    r"\bunder way\b": "in progress, running",
    r"\bof (?:your|their|our|one's) own\b": "your …, separate",
    r"\bas many as can be\b|\bno limit\b": "unlimited",
    r"\b(?:calls|jobs|streams|machines|reads|plans)(?: of each client)? at a time\b": "concurrent, maximum number of",
    r"\b(?:is|are) (?:needed|refused) (?:here|there)\b": "required, rejected",
    r"\bthis computer\b": "this machine, the server",
    r"\bhow far (?:it|a job|the job) is\b": "progress",
    r"\btwo looks\b": "interval",
    r"--(?:most|least)-": "--max-, --min-",
}
SERVICE_CODE = (
    "goffish/services", "goffish/client", "goffish/cli", "goffish/definitions.py", "goffish/errors.py",
    "goffish/extras.py", "goffish/partial.py", "proto", "docs/guides/service-", "docs/concepts/threat-model.md",
)  # fmt: skip
DATAFLOW_CODE = ("goffish/scheduling", "goffish/cloud", "goffish/services", "goffish/client", "goffish/cli", "proto")
#: Of docstrings: code, shapes of arrays such as ``shape (elements,)``, and names such as ``elements : tuple``.
CODE = re.compile(r"``[^`]*``|`[^`]*`|shape \([^)]*\)|^ *\w+(?:, \w+)* : .*", re.MULTILINE)
#: Pages that quote what others wrote.
QUOTING = ("docs/specs",)


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string in a module that has words: docstrings, messages, help."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            if "_" in node.value and re.fullmatch(r"[a-z_ ]+", node.value):
                continue  # names of a named tuple
            yield node.lineno, CODE.sub("", node.value)


#: What is not text in a file: tags and code of templates; configuration of other programs in pages.
_NO_TEXT = {
    ".html": r"\{[{%#].*?[}%#]\}|<[^>]*>|\{[{%].*$",
    ".md": r"`[^`]*`",
    ".yaml": r"^(?!.*#).*$|^[^#]*(?=#)",
    ".proto": r"^(?!.*//).*$|^.*?(?=//)",
    ".js": r"^(?!\s*//).*$",
}
_CONFIGURATION = re.compile(r"^ *```(?:ini|json|nginx)\n.*?^ *```", re.DOTALL | re.MULTILINE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of what is read by users in a file."""
    if path.suffix == ".py":
        yield from strings(path)
        return
    body = path.read_text(encoding="utf-8")
    body = _CONFIGURATION.sub(lambda found: "\n" * found[0].count("\n"), body)
    for number, line in enumerate(body.splitlines(), 1):
        yield number, re.sub(_NO_TEXT.get(path.suffix, "(?!)"), "", line)


def files() -> list[Path]:
    """Return all files that users read text of."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")]
    for place, suffixes in {
        "goffish": (".py", ".html", ".js", ".yaml"), "docs": (".md",), "examples": (".py", ".md", ".yaml"),
        "proto": (".proto",),
    }.items():  # fmt: skip
        found += [path for path in sorted((ROOT / place).rglob("*")) if path.suffix in suffixes]
    return [path for path in found if "_pb2" not in path.name and "vega-" not in path.name]


@pytest.mark.parametrize("package", sorted({"/".join(path.relative_to(ROOT).parts[:2]) for path in files()}))
def test_words(package: str) -> None:
    """Breaks when a text says in other words what has a term, or speaks of a program as of a person."""
    wrong = []
    for path in files():
        place = path.relative_to(ROOT).as_posix()
        if not (place + "/").startswith(package + "/") or place.startswith(QUOTING):
            continue
        words = WORDS | (DATAFLOW_WORDS if place.startswith(DATAFLOW_CODE) else {})
        words |= SERVICE_WORDS if place.startswith(SERVICE_CODE) else {}
        for line, text in texts(path):
            for pattern, instead in words.items():
                wrong += [
                    f"{place}:{line}: {found[0]}: {instead}" for found in re.finditer(pattern, text, re.IGNORECASE)
                ]
    assert not wrong, "\n".join(wrong)


#: Options that mean different things in different commands.
DIFFERENT = {
    "--algorithm": "a filter of jobs; the algorithm to estimate",
    "--attribute": "an attribute to build, or to read",
    "--authority": "of a server, or of all machines of a flow",
    "--budget": "a limit of a job; a question to a strategy table",
    "--certificate": "of a server, or of a machine of a flow",
    "--checkpoint": "a duration, or a folder",
    "--cloud": "a file, or a name on the server",
    "--column": "of a file of rates, or of a plot",
    "--dry-run": "a plan, or changes of a flow",
    "--end": "of paths, or of instances",
    "--engine": "of graph runs, of calibration, of estimates, of simulations",
    "--every": "of rows of rates, or of checkpoints",
    "--home": "of a server, or read by a report",
    "--interval": "of decisions, or of the display",
    "--largest": "a number, or a mode",
    "--listen": "of a server, of a flow, or of an agent",
    "--machine-type": "to fit a market, or to rent",
    "--market": "of rented machines, or a fitted one",
    "--max-machines": "of each job, or of a flow",
    "--option": "of policies, or of algorithms",
    "--output": "what a command writes",
    "--policy": "of dataflows, jobs on the server, or spot jobs",
    "--rates": "also of jobs on the server, which reads no files",
    "--resume": "a run, or a calibration",
    "--slots": "for jobs, or for workers",
    "--start": "of paths, windows, or instances",
    "--state": "of jobs, or a folder of a live graph",
    "--timesteps": "written by run, read by plot",
    "--token": "of a client, or of a flow",
    "--until": "a time, or a duration",
    "--window": "of times, or of a column",
    "--workers": "threads or ranks of graph runs, or processes of flows",
}


def options() -> Iterator[tuple[str, str, str, str]]:
    """Command, option, help and kind of every option that is not a field of a model of another package."""
    models = (*ALGORITHMS.values(), *APPLICATIONS.values(), *OPTIONS.values())
    fields = {_FLAGS.get(name, "--" + name.replace("_", "-")) for model in models for name in model.model_fields}

    def walk(command: Any, path: str) -> Iterator[tuple[str, str, str, str]]:
        for name, one in subcommands(command):
            yield from walk(one, f"{path} {name}".strip())
        for one in command.params:
            flags = [flag for flag in one.opts if flag.startswith("--")]
            if flags and "completion" not in flags[0]:
                own = flags[0] not in fields or path.split(maxsplit=1)[0] not in ("run", "partition", "timeseries")
                yield path, flags[0], one.help or "", "option" if own else "field"

    yield from walk(get_command(app), "")


def test_help_of_options() -> None:
    """Breaks when an option has different help in two commands, one concept has two names, or a help is no help."""
    helps: dict[str, set[str]] = {}
    names: dict[str, set[str]] = {}
    wrong = []
    for command, name, text, kind in options():
        if re.match("--(?:most|least)-", name):
            wrong.append(f"{command} {name}: --max-… or --min-…")
        if kind == "field":
            continue
        first = text.split(". ")[0].rstrip(".")
        helps.setdefault(name, set()).add(first)
        names.setdefault(first, set()).add(name)
        if not text.endswith(".") or len(text) > 125 or "\n" in text:
            wrong.append(f"{command} {name}: one sentence of at most one line, with a period: {text}")
        if re.search(r"\bdefault\b", text, re.IGNORECASE):
            wrong.append(f"{command} {name}: defaults are for show_default: {text}")
    wrong += [f"{name}: {sorted(found)}" for name, found in helps.items() if len(found) > 1 and name not in DIFFERENT]
    wrong += [f"{sorted(found)}: one name for {text!r}" for text, found in names.items() if len(found) > 1]
    assert not wrong, "\n".join(wrong)
    assert {name for name, found in helps.items() if len(found) > 1} >= set(DIFFERENT) - {"--attribute"}

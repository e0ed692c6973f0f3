"""Former option names, accepted with a deprecation warning."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

#: Former and current names of options, by command.
RENAMED = {
    ("ingest",): {"--work": "--work-dir"},
    ("run", "louvain"): {"--least-gain": "--min-gain"},
    ("simulate",): {"--error": "--oracle-error", "--bias": "--oracle-bias", "--mean-life": "--mean-lifetime"},
    ("spot", "fit"): {"--only": "--machine-type", "--local": "--local-cores", "--dependent": "--correlated"},
    ("spot", "simulate"): {"--every": "--start-interval"},
    ("spot", "advise"): {
        "--holding": "--machine", "--saved": "--work-from-checkpoint", "--used": "--used-minutes",
    },
    ("top",): {"--every": "--interval"},
    ("jobs", "submit"): {
        "--key": "--client-key", "--most-attempts": "--max-attempts", "--memory": "--max-memory",
        "--cpu-seconds": "--max-cpu-seconds",
    },
    ("jobs", "log"): {"--bytes": "--max-bytes"},
    ("clients", "add"): {"--certificate": "--common-name", "--token": "--with-token"},
    ("serve",): {
        "--keep": "--keep-days", "--cloud-pace": "--cloud-speed", "--rate": "--max-call-rate",
        "--at-a-time": "--max-calls", "--most-waiting": "--max-queued", "--most-queued": "--max-queued-per-client",
        "--most-workers": "--max-workers", "--most-cores": "--max-cores", "--most-memory": "--max-memory",
        "--most-run": "--max-run-time", "--most-option": "--max-option", "--most-message": "--max-message",
        "--most-upload": "--max-upload", "--most-uploads": "--max-uploads", "--most-plan": "--max-plan-time",
        "--most-plan-memory": "--max-plan-memory", "--most-streams": "--max-streams",
    },
}  # fmt: skip


def with_current_names(arguments: Iterable[str]) -> list[str]:
    """Replace former option names in command-line arguments, with one warning on standard error for each.

    Examples
    --------
    >>> with_current_names(["top", "--interval", "1"])
    ['top', '--interval', '1']
    """
    given = list(arguments)
    names = next((names for command, names in RENAMED.items() if tuple(given[: len(command)]) == command), {})
    end = given.index("--") if "--" in given else len(given)
    return [_current(argument, names) for argument in given[:end]] + given[end:]


def _current(argument: str, names: dict[str, str]) -> str:
    flag, equals, value = argument.partition("=")
    if flag not in names:
        return argument
    _warn(flag, names[flag])
    return f"{names[flag]}{equals}{value}"


def _warn(former: str, current: str) -> None:
    sys.stderr.write(f"warning: {former} is deprecated; use {current}\n")


def arguments_of(given: Sequence[str] | None) -> list[str]:
    """Return the arguments of a command line, those of the process by default, with current option names."""
    return with_current_names(sys.argv[1:] if given is None else given)

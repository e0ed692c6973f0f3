"""`goffish doctor`: what is installed, what is missing for which feature, and the command that installs it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goffish.cli import doctor
from goffish.extras import EXTRAS, missing
from tests.commands import ENVIRONMENT, ROOT, Ended, call

OPTIONAL = {package for extra in EXTRAS.values() for package in extra.modules.values()}
Doctor = Callable[..., Ended]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def linked(folder: Path, without: set[str]) -> None:
    """Fill a folder of packages with links to those of this environment, without some distributions."""
    hidden = {"bin", "__pycache__", "__editable__", ".."}
    for found in importlib.metadata.distributions():
        if normal(found.metadata["Name"]) in without | {"goffish"}:
            hidden |= {path.parts[0] for path in found.files or ()}
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name not in hidden:
            (folder / path.name).symlink_to(path)


@pytest.fixture
def environment(tmp_path: Path) -> Callable[[set[str]], Doctor]:
    """Make an environment without some distributions, where no program is on the path."""

    def make(without: set[str]) -> Doctor:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
        [packages] = (tmp_path / "env" / "lib").glob("python3*/site-packages")
        linked(packages, without)
        (tmp_path / "programs").mkdir()

        def run(*words: str, **variables: str) -> Ended:
            bare = {name: text for name, text in ENVIRONMENT.items() if name not in ("JAVA_HOME", "VIRTUAL_ENV")}
            command = [tmp_path / "env" / "bin" / "python", "-m", "goffish", *words]
            done = subprocess.run(
                command, cwd=tmp_path, env=bare | {"PATH": str(tmp_path / "programs")} | variables, text=True,
                capture_output=True, check=False, timeout=120,
            )  # fmt: skip
            assert "Traceback" not in done.stderr
            return Ended(done.returncode, done.stdout, done.stderr)

        return run

    return make


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of a printed table; columns are two or more blanks apart."""
    table = text.partition(f"{heading}\n")[2].partition("\n\n")[0]
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()[1:]]


def texts(body: Any) -> set[str]:
    """Return all names and values of a JSON document."""
    if isinstance(body, dict):
        return {str(name) for name in body} | texts(list(body.values()))
    return set().union(*map(texts, body)) if isinstance(body, list) else {str(body)}


def test_text_has_a_row_for_every_extra_and_program() -> None:
    shown = call("doctor")
    assert (shown.code, shown.err) == (0, "")
    assert [(row[0], row[2]) for row in rows(shown.out, "extras")] == [(n, e.feature) for n, e in EXTRAS.items()]
    assert [row[0] for row in rows(shown.out, "programs")] == ["java", "mpirun", "spark-submit"]
    assert f"python        {sys.version.split()[0]}\n" in shown.out


def test_everything_printed_is_in_json(environment: Callable[[set[str]], Doctor]) -> None:
    """Breaks when a table has a value that programs cannot read."""
    run = environment({"plotly", "networkx"})
    shown, listed = run("doctor"), texts(run("doctor", "--json").json)
    listed |= {name.replace("_", " ") for name in listed}
    facts = [re.split(r"\s{2,}", line.strip()) for line in shown.out.partition("\n\n")[0].splitlines()[1:]]
    assert f"goffish {doctor.__version__}" == shown.out.splitlines()[0]
    for cell in (cell for row in [*facts, *rows(shown.out, "extras"), *rows(shown.out, "programs")] for cell in row):
        assert cell in listed or cell in ("yes", "no") or re.fullmatch(r"no: (.*) missing", cell), cell


@pytest.mark.slow
def test_no_extra_is_installed(environment: Callable[[set[str]], Doctor]) -> None:
    """Breaks when a missing package is an error, or its extra is not named as other commands name it."""
    run = environment(OPTIONAL)
    shown, report = run("doctor"), run("doctor", "--json").json
    assert (shown.code, shown.err) == (0, "")
    assert [row[1:] for row in rows(shown.out, "extras")] == [
        ["no", extra.feature, f"pip install 'goffish[{name}]'"] for name, extra in EXTRAS.items()
    ]
    for entry in report["extras"]:
        extra = EXTRAS[entry["extra"]]
        assert not entry["installed"]
        assert set(entry["missing"]) == set(entry["versions"]) == set(extra.modules.values())
        for command in extra.commands:
            told = missing(next(iter(extra.modules)), command)
            assert told is not None and told.endswith(entry["install"])
    refused = run("plot", "quotient", "store", "-o", "a.png")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith("is not installed: pip install 'goffish[plot]'\n")


def test_no_program_is_installed(environment: Callable[[set[str]], Doctor]) -> None:
    run = environment(OPTIONAL)
    assert rows(run("doctor").out, "programs") == [
        ["java", "not found", "the Spark engine", "install Java 17 or newer, or set JAVA_HOME"],
        ["mpirun", "not found", "the MPI engine", "pip install 'goffish[mpi]'"],
        ["spark-submit", "not found", "Spark clusters", "pip install 'goffish[spark]'"],
    ]


def test_one_package_of_an_extra_is_missing(environment: Callable[[set[str]], Doctor]) -> None:
    run = environment({"plotly"})
    states = {row[0]: row[1] for row in rows(run("doctor").out, "extras")}
    assert states == dict.fromkeys(EXTRAS, "yes") | {"plot": "no: plotly missing"}
    [plot] = (entry for entry in run("doctor", "--json").json["extras"] if entry["extra"] == "plot")
    assert (plot["missing"], plot["install"]) == (["plotly"], "pip install 'goffish[plot]'")
    assert plot["versions"]["scipy"] == importlib.metadata.version("scipy")


@pytest.mark.slow
def test_a_package_of_every_installation_is_missing(environment: Callable[[set[str]], Doctor]) -> None:
    run = environment({"numba", "pymetis"})
    for words in (("doctor",), ("doctor", "--json")):
        shown = run(*words)
        assert (shown.code, shown.err) == (
            1,
            "error: required packages are missing: numba, pymetis; run pip install goffish\n",
        )
        assert "pymetis" in shown.out
    packages = json.loads(shown.out)["packages"]
    assert packages["numba"] is None
    assert packages["numpy"] == importlib.metadata.version("numpy")


JAVA_11 = "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2"
JAVA_21 = "echo 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2; echo 'openjdk version \"21\" 2023-09-19' >&2"


@pytest.mark.parametrize(
    ("script", "version", "problem"),
    [
        (JAVA_21, "21", None),
        ("echo 'java version \"1.8.0_402\"' >&2", "1.8.0_402", "version 1.8.0_402 is too old; 17 or newer is required"),
        (JAVA_11, "11.0.2", "version 11.0.2 is too old; 17 or newer is required"),
        ("exit 3", None, "printed no version (exit code 3)"),
        ("printf '\\377' >&2", None, "printed no version (exit code 0)"),
        (None, None, "cannot be started (Permission denied)"),
    ],
)
def test_java(
    script: str | None, version: str | None, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a Java that Spark cannot use passes, or ends the command."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o644 if script is None else 0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    [found] = (program for program in doctor.report()["programs"] if program["program"] == "java")
    assert (found["found"], found["version"], found["problem"]) == (str(java), version, problem)
    assert (found["install"] is None) == (problem is None)


def test_a_java_home_that_is_gone(environment: Callable[[set[str]], Doctor]) -> None:
    """Breaks when another Java on the path hides what stops PySpark."""
    java = rows(environment(set())("doctor", JAVA_HOME="/none").out, "programs")[0]
    assert java[1] == "/none/bin/java (cannot be started (No such file or directory))"


def test_a_java_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(doctor, "_JAVA_TIMEOUT_S", 0.1)
    assert doctor.report()["programs"][0]["problem"] == "no answer within 0.1 s"


@pytest.mark.slow
def test_an_mpi_launcher_on_the_path(environment: Callable[[set[str]], Doctor], tmp_path: Path) -> None:
    run = environment({"mpi4py"})
    launcher = tmp_path / "programs" / "mpirun"
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    assert rows(run("doctor").out, "programs")[1] == ["mpirun", str(launcher), "the MPI engine"]
    [mpi] = (row for row in rows(run("doctor").out, "extras") if row[0] == "mpi")
    assert mpi[1] == "no"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Breaks in containers that run as a number that has no name."""
    (tmp_path / "file").touch()
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert doctor.report()["kernel_cache"] == "none: set NUMBA_CACHE_DIR"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    assert doctor.report()["kernel_cache"] == str(tmp_path / "kernels")


def test_the_core_packages_are_the_dependencies() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert set(doctor._CORE) == {re.split(r"[><=! ]", text)[0] for text in needed}

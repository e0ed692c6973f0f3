"""Flows that clients may run: the files of a folder of the operator, and descriptions that use what these export.

The server reads the files as text only; workers run them. Of a client it takes names, which it compares with those of
the files and with their ``__all__``, and inputs, which it resolves as those of other jobs.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from goffish.definitions import read_definition
from goffish.errors import InputError
from goffish.modules import load_module
from goffish.services.runners.folder import write_whole
from goffish.streaming.flow import Flow
from goffish.streaming.flow_file import FlowFile, Names, Read, Write, kind_of, load_flow, read_flow
from goffish.streaming.runtime.plan import Plan
from goffish.streaming.sinks import Sink
from goffish.streaming.sources import Position, Reader, Source

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_SUFFIXES = (".py", ".yaml", ".yml")
#: Kinds of sources and sinks that a description may have.
_FILES = ("json_lines", "csv", "parquet")
_READS, _WRITES = (*_FILES, "gofs", "generate", "source"), ("sink", "result")
#: Characters of a path that sources expand.
_PATTERN = re.compile(r"[*?\[\]{}]")
Resolve = Callable[[str], str]


class FlowFolder:
    """Folder of flow files.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Exports of files as they were at a time and with a size.
        self._parsed: dict[Path, tuple[int, int, list[str]]] = {}

    @property
    def files(self) -> dict[str, Path]:
        """Files by name; those whose name begins with an underscore are left out.

        Raises
        ------
        InputError
            Two files have one name.
        """
        found: dict[str, Path] = {}
        for path in sorted(self.path.iterdir()):
            if path.suffix in _SUFFIXES and _NAME.fullmatch(path.stem) and path.is_file():
                if path.stem in found:
                    raise InputError(f"{found[path.stem]} and {path} have one name; rename one of them")
                found[path.stem] = path
        return found

    def file(self, name: str) -> Path:
        """Return the file of a flow.

        Parameters
        ----------
        name : str

        Raises
        ------
        InputError
        """
        files = self.files
        if name not in files:
            raise InputError(f"unknown {name[:80]!r}; choose one of {', '.join(files) or 'none'}")
        return files[name]

    def exports(self, name: str) -> list[str]:
        """Return the names in ``__all__`` of a Python file, without running it.

        Parameters
        ----------
        name : str

        Raises
        ------
        InputError
            The file does not exist or cannot be parsed.
        """
        path = self.file(name)
        if path.suffix != ".py":
            return []
        status = path.stat()
        known = self._parsed.get(path)
        if known is None or known[:2] != (status.st_mtime_ns, status.st_size):
            known = self._parsed[path] = (status.st_mtime_ns, status.st_size, _exports_of(path))
        return known[2]


def _exports_of(path: Path) -> list[str]:
    """Return the names in ``__all__`` of a Python file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path}: cannot be parsed ({error})") from None
    for one in tree.body:
        targets = one.targets if isinstance(one, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            try:
                names = ast.literal_eval(one.value)  # type: ignore[attr-defined]
            except (ValueError, TypeError):
                names = None
            if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
                raise InputError(f"{path}:{one.lineno}: __all__ must be a list of texts")
            return list(names)
    return []


class _Offers:
    """What a folder offers to one description, whose names can be many: each file is read once.

    Parameters
    ----------
    folder : FlowFolder
    """

    def __init__(self, folder: FlowFolder) -> None:
        self._folder, self._exports = folder, dict[str, list[str]]()

    def check(self, text: str) -> Path:
        """Return the path of the file of ``file:name`` in a description, if the file exports that name.

        Parameters
        ----------
        text : str

        Raises
        ------
        InputError
        """
        name, _, export = text.partition(":")
        if name not in self._exports:
            self._exports[name] = self._folder.exports(name)
        exported = self._exports[name]
        if export not in exported:
            offered = ", ".join(f"{name}:{one}" for one in exported) or f"none, as {name} has no __all__"
            raise InputError(f"the server does not offer it; choose one of {offered}")
        return self._folder.path / f"{name}.py"


_NOT_LOADED = "the server does not load what flows call"


class _Stub(Source, Sink):
    """What the server has in place of functions, sources and sinks, which it does not load."""

    def __call__(self, *_: Any) -> None:
        raise AssertionError(_NOT_LOADED)

    def partitions(self) -> list[str]:
        raise AssertionError(_NOT_LOADED)

    def open(self, partition: str, position: Position | None) -> Reader:
        raise AssertionError(_NOT_LOADED)


class _Offered(Names):
    """What names in a description are: what files of the folder export, inputs, and the result of the job."""

    def __init__(self, folder: FlowFolder, resolve: Resolve, result: Path, *, loads: bool) -> None:
        self._offers, self._resolve, self._result, self._loads = _Offers(folder), resolve, result, loads
        self._modules: dict[Path, Any] = {}
        #: Names of the sinks that were found.
        self.sinks: list[str] = []

    def find(self, text: str) -> Any:
        path = self._offers.check(text)
        if not self._loads:
            return _Stub()
        name = text.partition(":")[2]
        if path not in self._modules:
            self._modules[path] = load_module(path)
        module = self._modules[path]
        if not hasattr(module, name):
            raise InputError(f"{path}: has no {name}, which is in its __all__")
        return getattr(module, name)

    def read(self, given: Read) -> Read:
        kind = kind_of(given)
        if kind not in _READS:
            raise InputError(f"{kind}: not accepted from clients; choose one of {', '.join(_READS)}")
        if kind in _FILES:
            return given.model_copy(update={kind: self._resolve(getattr(given, kind))})
        if given.gofs is not None:
            return given.model_copy(
                update={"gofs": given.gofs.model_copy(update={"store": self._resolve(given.gofs.store)})}
            )
        return given

    def write(self, given: Write) -> Write:
        if given.sink is not None:
            self.sinks.append(given.sink)
            return given
        if given.result is not None:
            return Write(parquet=str(self._result))
        raise InputError(f"{kind_of(given)}: not accepted from clients; choose one of {', '.join(_WRITES)}")


def description_of(text: str) -> FlowFile:
    """Parse a description of a flow.

    Parameters
    ----------
    text : str
        JSON with the content of a flow file.

    Raises
    ------
    InputError
        Names the field and the accepted values.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"must be JSON ({error})") from None
    if not isinstance(body, dict):
        raise InputError("must be a JSON object with the content of a flow file")
    return read_definition(FlowFile, body, "flow", "name and operators")


def check_description(folder: FlowFolder, text: str, resolve: Resolve, workers: int) -> dict[str, str]:
    """Check a description as far as that is possible without running functions, and return the paths of its inputs.

    Parameters
    ----------
    folder : FlowFolder
    text : str
    resolve : callable
        Resolves the name of an input to a path.
    workers : int
        Number of workers of the job.

    Returns
    -------
    dict of str to str
        Path of each input, by the name that the client gave.

    Raises
    ------
    InputError
        Names the field and the accepted values.
    """
    paths: dict[str, str] = {}

    def resolved(uri: str) -> str:
        path = resolve(uri)
        if _PATTERN.search(path):
            raise InputError(f"{uri!r}: names with any of *?[]{{}} are not accepted")
        paths[uri] = path
        return path

    names = _Offered(folder, resolved, Path("records"), loads=False)
    topology = read_flow(description_of(text), names).check()
    if workers > 1:
        Plan(topology)
    return paths


def load_description(folder: FlowFolder, text: str, paths: Mapping[str, str], result: Path) -> tuple[Flow, list[str]]:
    """Return the flow of a description, and the names of sinks of the folder that it uses.

    Parameters
    ----------
    folder : FlowFolder
    text : str
    paths : mapping of str to str
        As `check_description` returned them.
    result : Path
        Folder for the records of the result.

    Raises
    ------
    InputError
    """
    names = _Offered(folder, paths.__getitem__, result, loads=True)
    return read_flow(description_of(text), names), names.sinks


class Versions:
    """Versions of the flow of a job, numbered from 0: files in the folder of the job, named by their contents.

    Files of the operator are copied, so that a job that restarts runs what it ran before. Checkpoints name modules of
    the versions that wrote them, which other jobs that resume from them must have under the same names.

    Parameters
    ----------
    job : Path
        Folder of the job.
    """

    def __init__(self, job: Path) -> None:
        self._job = job

    def __contains__(self, number: int) -> bool:
        return self._number(number).exists()

    def _number(self, number: int) -> Path:
        """File with the name of a version's file."""
        return self._job / f"version_{number}"

    def add(self, number: int, content: bytes, suffix: str) -> None:
        """Write a version.

        Parameters
        ----------
        number : int
        content : bytes
        suffix : str
        """
        name = f"flow_{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
        write_whole(self._job / name, content)
        write_whole(self._number(number), name.encode())

    def remove(self, number: int) -> None:
        """Remove a version.

        Parameters
        ----------
        number : int
        """
        if number in self:
            name = self._number(number).read_text()
            self._number(number).unlink()
            if all(one.read_text() != name for one in self._job.glob("version_*")):
                (self._job / name).unlink(missing_ok=True)

    def copy(self, earlier: Path) -> None:
        """Copy the files of all versions of another job, for what its checkpoints name.

        Parameters
        ----------
        earlier : Path
            Folder of that job.
        """
        for path in earlier.glob("flow_*"):
            write_whole(self._job / path.name, path.read_bytes())

    def load(self, number: int, folder: FlowFolder) -> tuple[Flow, list[str]]:
        """Return the flow of a version, and the names of what only one job at a time may use.

        Parameters
        ----------
        number : int
        folder : FlowFolder

        Raises
        ------
        InputError
        """
        if number not in self:
            raise InputError(f"version {number}: does not exist")
        path = self._job / self._number(number).read_text()
        if path.suffix == ".json":
            given = json.loads(path.read_text())
            return load_description(folder, given["definition"], given["paths"], self._job / "records")
        flow = load_flow(str(path))
        return flow, [f"flow {flow.name}"]

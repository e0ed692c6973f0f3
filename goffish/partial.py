"""Output files, local and in object storage: validation of places, and atomic writes with temporary files."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from goffish.errors import InputError
from goffish.storage import open_filesystem, publishes_whole, reason_of

#: Beginning of a URI after normalization by pathlib or scripts; a single letter may be a drive.
_FLATTENED = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_open: set[Path] = set()


def is_uri(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is a URI of something other than a local file.

    Raises
    ------
    InputError
        `path` is a path object made from a URI, a text such as ``s3:/x`` with one slash only, or a ``file://`` URI
        without an absolute path.
    """
    text = os.fspath(path)
    if _FLATTENED.match(text):
        if isinstance(path, str):
            raise InputError(f"{text}: a URI needs two slashes after the colon; write ./{text} for a local folder")
        raise InputError(f"{text}: a path object cannot hold a URI; give the URI as a text")
    if not text.lower().startswith("file://"):
        return "://" in text
    if not text[7:].startswith("/"):
        raise InputError(f"{text}: a file URI needs an absolute path, as in file:///folder/name")
    return False


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return the local path of an output given as a path or a ``file://`` URI.

    All outputs that are local only must be resolved by this function: other URIs would create a folder such as ``s3:``.

    Raises
    ------
    InputError
        `path` is another URI.
    """
    if is_uri(path):
        raise InputError(f"{path}: URIs are not supported here; give a local path")
    text = os.fspath(path)
    return Path(text[7:] if text.lower().startswith("file://") else text)


def absolute_place(path: str | os.PathLike[str]) -> str:
    """Return a place as other processes name it: an absolute path, or the URI.

    Raises
    ------
    InputError
        `path` is a URI that has lost a slash.
    """
    return os.fspath(path) if is_uri(path) else str(local_path(path).absolute())


def check_place(path: str | os.PathLike[str], suffixes: Collection[str] = ()) -> Path:
    """Return the local path of an output file after checking that it can be written.

    Raises
    ------
    InputError
        The path is a folder, its parent is missing or not writable, or its suffix is not one of `suffixes`.
    """
    target = local_path(path)
    if suffixes and target.suffix.lower() not in suffixes:
        raise InputError(f"{path}: the suffix must be {'one of ' * (len(suffixes) > 1)}{', '.join(suffixes)}")
    if target.is_dir():
        raise InputError(f"{path}: is a directory; name a file in it")
    if not target.absolute().parent.is_dir():
        raise InputError(f"{path}: the folder {target.parent} does not exist")
    _check_writable(path, target.absolute().parent)
    return target


def check_output(path: str | os.PathLike[str], suffixes: Collection[str] = ()) -> Path | str:
    """Return the local path or the URI of an output file after checking that it can be written.

    Raises
    ------
    InputError
        As of `check_place`; the scheme of a URI is unknown, its backend is missing, storage does not answer or refuses,
        or the bucket does not exist.
    """
    if not is_uri(path):
        return check_place(path, suffixes)
    uri = os.fspath(path)
    if suffixes and PurePosixPath(uri).suffix.lower() not in suffixes:
        raise InputError(f"{path}: the suffix must be {'one of ' * (len(suffixes) > 1)}{', '.join(suffixes)}")
    check_storage(uri)
    return uri


def check_storage(uri: str) -> None:
    """Refuse a URI below which nothing can be written, as far as storage says so beforehand.

    Raises
    ------
    InputError
    """
    with _reached(uri) as (system, place):
        bucket = place.strip("/").partition("/")[0]
        # Storage that does not answer is an error of the first request; the second one only says yes or no.
        if publishes_whole(system) and not system.exists(place) and not system.exists(bucket):
            raise InputError(f"{uri}: the bucket {bucket} does not exist, or access to it is denied")


@contextmanager
def _reached(uri: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URI and the path in it; what goes wrong there is an error in one line."""
    try:
        yield open_filesystem(uri)
    except InputError:
        raise
    except (ImportError, ValueError) as error:
        raise InputError(f"{uri}: {error}") from error
    except OSError as error:
        raise InputError(f"{uri}: cannot be written ({reason_of(error)})") from error


def check_new_place(path: str | os.PathLike[str], *, folder: bool = False) -> Path:
    """Return the local path of an output whose missing parent folders are created, after checking it.

    Parameters
    ----------
    path : path
    folder : bool
        Whether the output is a folder.

    Raises
    ------
    InputError
        The path is a folder instead of a file, or the reverse, or a parent is a file or not writable.
    """
    target = local_path(path)
    if not folder and target.is_dir():
        raise InputError(f"{path}: is a directory; name a file in it")
    if folder and target.exists() and not target.is_dir():
        raise InputError(f"{path}: is a file; name a folder")
    present = target.absolute()
    while not present.exists() or (present == target.absolute() and not folder):
        present = present.parent
    if not present.is_dir():
        raise InputError(f"{path}: {present} is a file, not a folder")
    _check_writable(path, present)
    return target


def _check_writable(path: str | os.PathLike[str], folder: Path) -> None:
    """Refuse a folder in which no file can be created, for any reason."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except PermissionError:
        raise InputError(f"{path}: no permission to write in {folder}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written in {folder} ({error.strerror or error})") from None


@contextmanager
def output_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Provide a `partial_file` for a user-given path or URI; that of a URI is uploaded when the context succeeds.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    if is_uri(path):
        check_storage(os.fspath(path))
        with tempfile.TemporaryDirectory(prefix="goffish-") as folder:
            temporary = Path(folder) / PurePosixPath(os.fspath(path)).name
            yield temporary
            _upload(temporary, os.fspath(path))
        return
    try:
        with partial_file(local_path(path)) as temporary:
            yield temporary
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error


def _upload(file: Path, uri: str) -> None:
    """Publish a file at a URI, whole or not at all."""
    with _reached(uri) as (system, place):
        if publishes_whole(system):
            system.put_file(str(file), place)
            return
        folder, _, name = place.rpartition("/")
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.partial"
        system.makedirs(folder, exist_ok=True)
        try:
            system.put_file(str(file), temporary)
            system.mv(temporary, place)
        except BaseException:
            with contextlib.suppress(OSError):
                system.rm_file(temporary)
            raise


@contextmanager
def partial_file(target: Path) -> Iterator[Path]:
    """Provide a temporary file next to `target`, which replaces `target` when the context succeeds.

    After an exception, the temporary file is removed and `target` is unchanged.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    _open.add(temporary)
    try:
        yield temporary
        temporary.replace(target)
    finally:
        _remove(temporary)
        _open.discard(temporary)


def remove_partial_files() -> None:
    """Remove all temporary files, for a process that exits without unwinding its threads."""
    for temporary in tuple(_open):
        _remove(temporary)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()

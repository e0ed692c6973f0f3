"""Storage that does not answer, or breaks off: one line that names it, whatever the backend raises."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import goffish as gf
from goffish.errors import InputError
from goffish.gofs import open_store


class ForeignError(Exception):
    """Not an OSError, as those of botocore."""


class Breaking(MemoryFileSystem):
    """Breaks off after some calls."""

    protocol = "breaking"
    left = 0

    def _count(self) -> None:
        Breaking.left -= 1
        if Breaking.left < 0:
            raise ForeignError("the endpoint\nis gone")

    def info(self, path: str, **given: Any) -> Any:
        self._count()
        return super().info(path, **given)

    def _open(self, *given: Any, **more: Any) -> Any:
        self._count()
        return super()._open(*given, **more)

    def cat_file(self, *given: Any, **more: Any) -> Any:
        self._count()
        return super().cat_file(*given, **more)

    def pipe_file(self, *given: Any, **more: Any) -> Any:
        self._count()
        return super().pipe_file(*given, **more)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """URLs of a port of this machine that refuses connections, and that no other program can listen on meanwhile."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]

    def url(kind: str) -> str:
        pytest.importorskip({"s3": "s3fs", "http": "aiohttp", "ftp": "ftplib"}[kind])
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}"), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_MAX_ATTEMPTS", "1"),
            ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_DEFAULT_REGION", "x"), ("AWS_EC2_METADATA_DISABLED", "true"),
        ):  # fmt: skip
            monkeypatch.setenv(name, value)
        if kind == "s3":
            monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)  # which wait for seconds
        fsspec.config.conf.clear()
        return f"s3://bucket{port}" if kind == "s3" else f"{kind}://127.0.0.1:{port}"

    yield url
    bound.close()


@pytest.mark.parametrize("kind", ["s3", "http", "ftp"])
def test_an_endpoint_that_refuses(kind: str, refused: Callable[[str], str], tmp_path: Path) -> None:
    """Breaks when the exception of a backend's library is no error of the input."""
    url = refused(kind)
    graph = gf.from_edges([0, 1], [1, 2])
    calls: list[Callable[[], Any]] = [
        lambda: gf.read(f"{url}/edges.txt"), lambda: open_store(f"{url}/a.store"),
        lambda: gf.read(f"{url}/edges.parquet"),
    ]  # fmt: skip
    if kind != "http":  # which cannot be written at all
        calls += [lambda: gf.partition(graph, parts=1, method="hash").save(f"{url}/b.store")]
        calls += [lambda: gf.write(graph, f"{url}/edges.txt")]
    for call in calls:
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value).startswith(f"{url}/") and "\n" not in str(caught.value)
        assert "cannot be " in str(caught.value), caught.value


def test_a_backend_that_breaks_off() -> None:
    """Breaks when some call of a backend is not guarded, wherever in a store or a file it comes."""
    fsspec.register_implementation("breaking", Breaking, clobber=True)
    Breaking.left = 1000
    graph = gf.from_edges([0, 1], [1, 2])
    layout = gf.partition(graph, parts=2, method="hash")
    layout.save("breaking://there")
    gf.write(graph, "breaking://edges.txt")
    actions: list[Callable[[int], Any]] = [
        lambda _: open_store("breaking://there").run("components"), lambda _: gf.read("breaking://edges.txt"),
        lambda at: layout.save(f"breaking://new{at}"), lambda at: gf.write(graph, f"breaking://new{at}.txt"),
    ]  # fmt: skip
    for action in actions:
        for calls in range(100):
            Breaking.left = calls
            try:
                action(calls)
            except gf.GoffishError as error:
                assert "breaking://" in str(error) and "the endpoint is gone" in str(error)
            else:
                assert calls > 0
                break
        else:
            pytest.fail("it never came to its end")

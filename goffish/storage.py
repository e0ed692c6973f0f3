"""File systems of fsspec, whose backends raise exceptions of their own libraries: here all of them are `OSError`."""

from __future__ import annotations

from typing import Any

from goffish.errors import GoffishError


def open_filesystem(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path in it.

    Raises
    ------
    ValueError, ImportError
        An unknown protocol, or a backend that is not installed.
    OSError
        The backend cannot be used, or its server does not answer; from all methods, too.
    """
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError):
        raise
    except Exception as error:
        raise _as_os_error(error) from error
    return _Translated(system), str(path)


def reason_of(error: OSError) -> str:
    """Why storage cannot be used, in a few words."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, OSError):
        error = cause  # HTTP's way to say that there is no answer
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return " ".join(str(error.strerror or error).split()) or type(error).__name__


#: Protocols of object storage, where an object is visible only once its upload is complete.
_WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss"}


def publishes_whole(system: Any) -> bool:
    """Whether files of a file system appear complete or not at all."""
    protocols = system.protocol
    return not _WHOLE.isdisjoint((protocols,) if isinstance(protocols, str) else protocols)


class _Translated:
    """A file system, or a file of one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*given: Any, **more: Any) -> Any:
            try:
                answer = found(*given, **more)
            except Exception as error:
                translated = _as_os_error(error)
                if translated is error:
                    raise
                raise translated from error
            return _Translated(answer) if name == "open" else answer

        return call

    def __enter__(self) -> _Translated:
        self._inner.__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        if given[0] is None:
            self.close()  # what is written reaches its place now, or not at all
        else:
            self._inner.__exit__(*given)


def _as_os_error(error: Exception) -> Exception:
    if isinstance(error, GoffishError | OSError | MemoryError):
        return error
    text = " ".join(str(error).split())
    return OSError(text[:300] or type(error).__name__)

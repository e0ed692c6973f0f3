"""A small file system, which commands can fill: a tmpfs in a mount namespace that needs no privileges."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ENVIRONMENT, Ended, call


class Disk:
    """A file system that only commands started by this object see at its path.

    Parameters
    ----------
    path : Path
        An empty folder.
    kilobytes : int

    Attributes
    ----------
    inside : Path
        The same folder, as this process sees it.
    """

    def __init__(self, path: Path, kilobytes: int) -> None:
        self.path = path
        mount = f'mount -t tmpfs -o size={kilobytes}k tmpfs "$0" && echo mounted && exec cat'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(path)]
        try:
            self._holder = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            pytest.skip(f"unshare cannot be run ({error})")
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "mounted\n":
            _, reason = self._holder.communicate()
            pytest.skip(f"mount namespaces are not permitted ({reason.strip()})")
        self.inside = Path(f"/proc/{self._holder.pid}/root{path}")

    @property
    def _enter(self) -> tuple[str, ...]:
        enter = "nsenter", "--preserve-credentials", "--user", "--mount", "--target", str(self._holder.pid)
        return *enter, "sh", "-c", 'cd "$0" && exec "$@"', str(self.path.parent)

    def __call__(self, *args: Any, **env: Any) -> Ended:
        """Run a command in the folder that holds the disk."""
        return call(*args, prefix=self._enter, **env)

    def start(self, *args: Any) -> subprocess.Popen[str]:
        """Start a command in the folder that holds the disk."""
        command = [*self._enter, sys.executable, "-m", "goffish", *map(str, args)]
        return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def resize(self, kilobytes: int) -> None:
        """Give the file system another size."""
        options = f"remount,size={kilobytes}k"
        subprocess.run([*self._enter, "mount", "-o", options, str(self.path)], check=True, capture_output=True)

    def files(self) -> set[str]:
        """Return the names of all files, hidden ones included."""
        return {one.relative_to(self.inside).as_posix() for one in self.inside.rglob("*") if one.is_file()}

    def close(self) -> None:
        """Unmount the file system, once no command uses it."""
        self._holder.communicate()

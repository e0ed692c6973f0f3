"""Hosts as network namespaces, with a cable between each two of them that a test can cut."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from itertools import combinations

import pytest


class Network:
    """Hosts 1 to n, with addresses 10.77.0.1 to 10.77.0.n.

    Parameters
    ----------
    size : int
    """

    def __init__(self, size: int) -> None:
        self._name = f"goffish-{os.getpid()}"
        self._hosts = range(1, size + 1)
        try:
            for one in self._hosts:
                self._run("netns", "add", self.space(one))
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            pytest.skip(f"network namespaces are not permitted ({error})")
        for one in self._hosts:
            self._in(one, "link", "set", "lo", "up")
            self._in(one, "address", "add", f"{self.address(one)}/32", "dev", "lo")
        for one, other in combinations(self._hosts, 2):
            ends = "name", f"to{other}", "netns", self.space(one), "type", "veth", "peer", "name", f"to{one}"
            self._run("link", "add", *ends, "netns", self.space(other))
            self.join(one, other)

    def _run(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def _in(self, host: int, *arguments: str) -> None:
        self._run("-n", self.space(host), *arguments)

    def space(self, host: int) -> str:
        """Return the name of a host's namespace."""
        return f"{self._name}-{host}"

    def address(self, host: int) -> str:
        """Return the address of a host."""
        return f"10.77.0.{host}"

    def command(self, host: int) -> tuple[str, ...]:
        """Return what runs a command on a host."""
        return "ip", "netns", "exec", self.space(host)

    def join(self, one: int, other: int) -> None:
        """Connect two hosts."""
        for end, far in ((one, other), (other, one)):
            self._in(end, "link", "set", f"to{far}", "up")
            route = f"{self.address(far)}/32", "dev", f"to{far}", "src", self.address(end)
            self._in(end, "route", "replace", *route)

    def cut(self, one: int, other: int) -> None:
        """Cut the cable between two hosts, without which their connections do not end but are silent."""
        for end, far in ((one, other), (other, one)):
            self._in(end, "link", "set", f"to{far}", "down")

    def close(self) -> None:
        """Remove all hosts."""
        for one in self._hosts:
            with suppress(OSError, subprocess.CalledProcessError):
                self._run("netns", "del", self.space(one))

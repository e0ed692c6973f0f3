"""Groups of commands: names that are unknown are explained, and commands are made when they are needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from typer.core import TyperGroup

from goffish.errors import InputError


class Commands(TyperGroup):
    """Command group that lists the valid names when an unknown one is given."""

    noun = "command"

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            raise InputError(f"unknown {self.noun} {args[0]!r}: choose one of {', '.join(names)}")
        return super().resolve_command(ctx, args)


class LazyCommands(Commands, ABC):
    """Command group with commands that are made when they are needed, as one run needs one of them."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of these commands, in the order of the help."""

    @abstractmethod
    def make(self, name: str) -> Any:
        """Return a command."""

    def list_commands(self, ctx: Any) -> list[str]:
        made = self.names()
        return [*made, *(name for name in self.commands if name not in made)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self.names():
            self.commands[cmd_name] = self.make(cmd_name)
        return super().get_command(ctx, cmd_name)

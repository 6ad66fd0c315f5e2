"""``LazyCommands``: a group of commands. Some of them are imported only when a user runs them."""

from __future__ import annotations

from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup


class LazyCommands(TyperGroup):
    """A group of commands. Some of them are imported only when a user runs them, so that the help starts fast.

    Attributes:
        lazy: the names of the commands that are imported late, each with its help text.
    """

    lazy: ClassVar[dict[str, str]] = {}

    def load_command(self, name: str) -> Any:
        """Import and return the command ``name``, one of ``lazy``. Subclasses implement this method."""
        raise NotImplementedError

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return [*super().list_commands(ctx), *self.lazy]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command ``cmd_name``. A command of ``lazy`` is a stub that has only its name and its help."""
        if cmd_name in self.lazy:
            return TyperCommand(cmd_name, help=self.lazy[cmd_name])
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command to run, the command, and its arguments.

        A command of ``lazy`` is imported now.
        """
        name, command, rest = super().resolve_command(ctx, args)
        return name, self.load_command(name) if name in self.lazy else command, rest

"""Command groups that import a command when it is used, so that ``--help`` stays instant."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


class NamedGroup(click.Group):
    """A group that knows its commands' names and summaries without having the commands.

    Subclasses give `summaries` and `load`. An unknown name is an error that lists the known.
    """

    kind = "command"

    def summaries(self) -> Mapping[str, str]:
        """Return command name to its line of help, in the order to list them."""
        raise NotImplementedError

    def load(self, name: str) -> click.Command:
        """Return the command of a known name."""
        raise NotImplementedError

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.summaries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.load(cmd_name) if cmd_name in self.summaries() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.summaries():
            known = ", ".join(self.summaries())
            ctx.fail(f"unknown {self.kind} {args[0]!r}; known: {known}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        title = "Commands" if self.kind == "command" else "Families"
        with formatter.section(title):
            formatter.write_dl(list(self.summaries().items()))


class LazyGroup(NamedGroup):
    """A group over ``commands``: name to ``("module:attribute", help)``."""

    def __init__(self, *args: Any, commands: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._where = {name: where for name, (where, _) in commands.items()}
        self._help = {name: text for name, (_, text) in commands.items()}

    def summaries(self) -> Mapping[str, str]:
        return self._help

    def load(self, name: str) -> click.Command:
        module, _, attribute = self._where[name].partition(":")
        package, _, rest = module.partition(".")
        assert package == "gpukit_cli"
        # Relative to this package, whatever name it was imported under.
        command: click.Command = getattr(
            importlib.import_module(f".{rest}", __package__), attribute
        )
        return command

"""Command groups that import a command when it is used, so that ``--help`` stays instant."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class NamedGroup(click.Group):
    """A group that knows its commands' names and summaries without having the commands.

    Subclasses give `names`, `summaries` and `load`. An unknown name is an error that lists the
    known ones.
    """

    kind = "command"

    def names(self) -> Collection[str]:
        """Return the commands' names in the order to list them."""
        raise NotImplementedError

    def summaries(self) -> Mapping[str, str]:
        """Return command name to its line of help."""
        raise NotImplementedError

    def load(self, name: str) -> click.Command:
        """Return the command of a known name."""
        raise NotImplementedError

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:  # click 8.1 would call this success
            raise click.UsageError(self.get_help(ctx), ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.load(cmd_name) if cmd_name in self.names() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.names():
            known = ", ".join(self.names())
            ctx.fail(f"unknown {self.kind} {args[0]!r}; known: {known}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        title = {"command": "Commands", "family": "Families"}.get(self.kind, "Layouts")
        with formatter.section(title):
            formatter.write_dl(list(self.summaries().items()))


class LazyGroup(NamedGroup):
    """A group over ``commands``: name to ``("module:attribute", help)``."""

    def __init__(self, *args: Any, commands: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._where = {name: where for name, (where, _) in commands.items()}
        self._help = {name: text for name, (_, text) in commands.items()}

    def names(self) -> Collection[str]:
        return self._help.keys()

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

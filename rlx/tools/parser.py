"""A command line whose mistakes are said in a line, with what was probably meant."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from rlx.errors import did_you_mean

__all__ = ["Parser", "subcommands"]


class Parser(argparse.ArgumentParser):
    """A parser of a command's arguments. A mistake exits with 2; what is wrong and where help is
    are a line each."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        command = self.prog.partition(" ")[2]
        shows = "`rlx help` lists the commands"
        if command:
            shows = f"`rlx help {command.partition(' ')[0]}` shows what it takes"
        self.exit(2, f"{self.prog}: {message}\n{shows}\n")

    def refuse(self, left: Sequence[str]) -> NoReturn:
        """Say which arguments are none of the command's."""
        options = [o for a in self._actions for o in a.option_strings if o.startswith("--")]
        hints = (did_you_mean(a.partition("=")[0], options) for a in left if a.startswith("--"))
        self.error(f"unrecognized arguments: {' '.join(left)}{next(filter(None, hints), '')}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As the base class, with what was probably meant."""
        known: Iterable[Any] | None = action.choices
        if known is not None and value not in known:
            names = [str(k) for k in known]
            hint = did_you_mean(value, names) or f"; expected {', '.join(names)}"
            what = "command" if isinstance(action, argparse._SubParsersAction) else "choice"
            raise argparse.ArgumentError(action, f"no {what} is called {value!r}{hint}")


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a parser's commands, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}

"""Scripts by which shells complete a command line. All is in them: a shell starts no Python for a
completion."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

from rlx.base.device_names import DEVICE_PRIORITY
from rlx.base.frozen import frozen
from rlx.tools.parser import subcommands

__all__ = ["SHELLS", "Command", "Flag", "bash", "commands_of", "fish", "zsh"]


@frozen
class Flag:
    """An option: its names, what it does, and what may follow it: nothing (None), one of the words,
    or, where there are none, a file."""

    names: tuple[str, ...]
    text: str
    words: tuple[str, ...] | None


@frozen
class Command:
    """A command: what it does, its options, and the words that may stand first in it; where there
    are none, files do."""

    name: str
    text: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...] = ()


def commands_of(parser: argparse.ArgumentParser) -> list[Command]:
    """The commands of a parser, after the parser itself."""
    parsers = subcommands(parser)
    texts = {
        c.dest: c.help or "" for a in parser._actions for c in getattr(a, "_choices_actions", ())
    }
    first = Command("", "", _flags([parser]), tuple(parsers))
    return [first, *(_command(n, texts[n], p) for n, p in parsers.items())]


def _command(name: str, text: str, parser: argparse.ArgumentParser) -> Command:
    inner = subcommands(parser)
    places = [a for a in parser._actions if not a.option_strings and a.choices]
    words = tuple(str(w) for a in places for w in a.choices or ())
    return Command(name, text, _flags([parser, *inner.values()]), words)


def _flags(parsers: Sequence[argparse.ArgumentParser]) -> tuple[Flag, ...]:
    found = {
        tuple(a.option_strings): Flag(tuple(a.option_strings), _plain(a.help), _words(a))
        for p in parsers
        for a in p._actions
        if a.option_strings
    }
    return tuple(found.values())


def _words(action: argparse.Action) -> tuple[str, ...] | None:
    if action.nargs == 0:
        return None
    if action.choices:
        return tuple(map(str, action.choices))
    return tuple(DEVICE_PRIORITY) if action.metavar in ("DEVICE", "TARGET") else ()


def _plain(text: str | None) -> str:
    return (text or "").replace("%%", "%").partition(";")[0]


# -- bash ----------------------------------------------------------------------------------

_BASH = """\
# Completion of rlx for bash, written by `rlx completion bash`.
_rlx() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} name= flags= words= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      -*) ;;
      *) name=${COMP_WORDS[i]}; break ;;
    esac
  done
  case "$name $prev" in
%s
  esac
  case $name in
%s
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  else
    compopt -o filenames 2> /dev/null
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}
complete -F _rlx rlx
"""


def bash(commands: Sequence[Command]) -> str:
    """The script of bash."""
    values = [
        f'    "{c.name} {n}") COMPREPLY=($(compgen -W "{" ".join(f.words)}" -- "$cur")); return ;;'
        for c in commands
        for f in c.flags
        for n in f.names
        if f.words
    ]
    lists: list[str] = []
    for c in commands:
        flags, words = " ".join(n for f in c.flags for n in f.names), " ".join(c.words)
        name = c.name or '""'
        lists.append(f'    {name}) flags="{flags}" words="{words}" ;;')
    return _BASH % ("\n".join(values), "\n".join(lists))


# -- zsh -----------------------------------------------------------------------------------

_ZSH = """\
#compdef rlx
# Completion of rlx for zsh, written by `rlx completion zsh`.
_rlx() {
  local context state state_descr line
  typeset -A opt_args
  local -a commands
  commands=(
%s
  )
  _arguments -C%s '1:command:->command' '*::argument:->arguments'
  case $state in
    command) _describe -t commands command commands ;;
    arguments)
      case $words[1] in
%s
      esac ;;
  esac
}
if [[ $funcstack[1] == _rlx ]]; then _rlx "$@"; else compdef _rlx rlx; fi
"""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh_flags(flags: Sequence[Flag]) -> Iterator[str]:
    for f in flags:
        text = "".join(f"\\{c}" if c in "[]:\\" else c for c in f.text)
        taken = (
            ""
            if f.words is None
            else f":value:({' '.join(f.words)})"
            if f.words
            else ":file:_files"
        )
        for name in f.names:
            yield " " + _quoted(f"*{name}[{text}]{taken}")


def zsh(commands: Sequence[Command]) -> str:
    """The script of zsh."""
    first, *others = commands
    listed = [f"    {_quoted(f'{c.name}:{c.text}')}" for c in others]
    cases: list[str] = []
    for c in others:
        rest = f"*:argument:({' '.join(c.words)})" if c.words else "*:file:_files"
        given = "".join(_zsh_flags(c.flags))
        cases.append(f"        {c.name}) _arguments{given} {_quoted(rest)} ;;")
    return _ZSH % ("\n".join(listed), "".join(_zsh_flags(first.flags)), "\n".join(cases))


# -- fish ----------------------------------------------------------------------------------


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_flag(where: str, f: Flag) -> str:
    names = "".join(f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}" for n in f.names)
    taken = "" if f.words is None else f" -x -a '{' '.join(f.words)}'" if f.words else " -r -F"
    return f"complete -c rlx -n {where}{names}{taken} -d {_fish_quoted(f.text)}"


def fish(commands: Sequence[Command]) -> str:
    """The script of fish."""
    first, *others = commands
    none = "__fish_use_subcommand"
    lines = ["# Completion of rlx for fish, written by `rlx completion fish`."]
    lines += ["complete -c rlx -f", *(_fish_flag(none, f) for f in first.flags)]
    for c in others:
        seen = f"'__fish_seen_subcommand_from {c.name}'"
        lines.append(f"complete -c rlx -n {none} -a {c.name} -d {_fish_quoted(c.text)}")
        lines.append(
            f"complete -c rlx -n {seen} " + (f"-a '{' '.join(c.words)}'" if c.words else "-F")
        )
        lines += [_fish_flag(seen, f) for f in c.flags]
    return "\n".join(lines) + "\n"


SHELLS: dict[str, Callable[[Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
"""The shells, and what writes their scripts."""

"""How models write calls of tools: a row of ``SPELLINGS`` for each way, told by their templates."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rlx.base.frozen import field, frozen
from rlx.errors import ModelError
from rlx.llm.calls.scan import MoreError, Scan, WrongError

__all__ = ["SPELLINGS", "Call", "Function", "Spelling", "by_schema", "quoted", "spelling_of"]

_ALPHABET = string.ascii_letters + string.digits


def _new_id() -> str:
    """Nine letters and digits: templates of Mistral take no others."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


@frozen
class Call:
    """A call that a model wrote: the name of a tool, and its arguments, a JSON object as text."""

    name: str
    arguments: str
    id: str = field(default_factory=_new_id)


@frozen
class Function:
    """A tool: its name, and the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, Any]


Spell = Callable[[str], str]
"""Makes Lark of a text with optional space and special tokens."""


@frozen
class Spelling:
    """Calls are a unit: ``opening``, calls with ``between`` between them, ``closing``. A call is
    ``begin``, what says the name and the arguments, ``end``.

    Templates of models that write so have all of ``signs``, and not ``other``. Where ``between`` is
    None an answer has one call. A unit that is ``first`` is one only at the beginning of an answer,
    and ``before`` may stand before it. Space in these texts may be more or less.
    """

    name: str
    signs: tuple[str, ...]
    begin: str = ""
    end: str = ""
    opening: str = ""
    between: str | None = "\n"
    closing: str = ""
    first: bool = False
    before: str = ""
    other: str = ""

    @property
    def mark(self) -> str:
        """The word that units begin with."""
        words = f"{self.opening} {self.begin}".split()
        return words[0] if words else ""

    @property
    def last(self) -> str:
        """The character that units end with."""
        return (self.closing or self.end or "}").strip()[-1]

    @property
    def parts(self) -> tuple[str, ...]:
        """All that is written around names and arguments."""
        return self.before, self.opening, self.begin, self.end, self.between or "", self.closing

    def unit(self, text: str, at: int, tools: Mapping[str, Function]) -> tuple[list[Call], int]:
        """The calls of a unit that begins at a place, and where it ends. WrongError for what is
        none, MoreError for what is not whole."""
        scan, calls = Scan(text, at), list[Call]()
        if self.before and scan.starts(self.before):
            scan.words(self.before)
        scan.words(self.opening)
        while True:
            scan.words(self.begin)
            name, arguments = self.read(scan, tools)
            scan.words(self.end)
            calls.append(Call(name, arguments))
            if not self.closing or scan.starts(self.closing.split()[0]):
                scan.words(self.closing)
                return calls, scan.at
            scan.words(self.between or "")

    def read(self, scan: Scan, tools: Mapping[str, Function]) -> tuple[str, str]:
        """The name and the arguments of a call."""
        raise AssertionError("each way to write calls has its own")

    def rule(self, name: str, tool: Function, spell: Spell) -> str:
        """What ``read`` reads as a rule of Lark, and rules that it needs."""
        raise AssertionError("each way to write calls has its own")


@frozen
class InJson(Spelling):
    """A JSON object with the name and the arguments under ``keys``. What other models call
    arguments is read as well; other keys do not matter."""

    keys: tuple[str, str] = ("name", "arguments")

    def read(self, scan: Scan, tools: Mapping[str, Function]) -> tuple[str, str]:
        """The name and the arguments of a call."""
        members = scan.members()
        name, _ = members.get(self.keys[0], (None, ""))
        other = members.get("arguments") or members.get("parameters") or (None, "")
        value, written = members.get(self.keys[1], other)
        return _known(name, tools), _object(value, written)

    def rule(self, name: str, tool: Function, spell: Spell) -> str:
        """The rule of a call."""
        called, arguments = map(json.dumps, self.keys)
        head = f"{{{called}: {json.dumps(tool.name, ensure_ascii=False)}, {arguments}: "
        return f'{name}: {quoted(head)} {by_schema(tool.schema)} "}}"\n'


@frozen
class AfterName(Spelling):
    """The name, ``middle``, and the arguments as a JSON object."""

    middle: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """All that is written around names and arguments."""
        return *super().parts, self.middle

    def read(self, scan: Scan, tools: Mapping[str, Function]) -> tuple[str, str]:
        """The name and the arguments of a call."""
        name = _known(scan.name(), tools)
        scan.words(self.middle)
        return name, _object(*scan.json())

    def rule(self, name: str, tool: Function, spell: Spell) -> str:
        """The rule of a call."""
        return f"{name}: {quoted(tool.name)} {spell(self.middle)} {by_schema(tool.schema)}\n"


@frozen
class Tagged(Spelling):
    """The name, ``middle``, and arguments one by one: ``key``, the name of one, ``value``, its
    value as text or JSON, ``done``."""

    middle: str = ""
    key: str = ""
    value: str = ""
    done: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """All that is written around names and arguments."""
        return *super().parts, self.middle, self.key, self.value, self.done

    def read(self, scan: Scan, tools: Mapping[str, Function]) -> tuple[str, str]:
        """The name and the arguments of a call."""
        name = _known(scan.name(), tools)
        scan.words(self.middle)
        schema = tools[name].schema
        found: dict[str, str] = {}
        while not scan.starts(self.end.split()[0]):
            scan.words(self.key)
            key = scan.until(self.value.split()[0]).strip()
            scan.words(self.value.partition(self.value.split()[0])[2])
            text = scan.until(self.done.strip())
            if self.done.startswith("\n"):  # as many as are written around values
                text = text.removeprefix("\n").removesuffix("\n")
            found[key] = _written(text, _member(schema, key))
        return name, f"{{{', '.join(f'{quoted(k)}: {v}' for k, v in found.items())}}}"

    def rule(self, name: str, tool: Function, spell: Spell) -> str:
        """The rule of a call."""
        needed, parts, rules = _several(tool.schema, "required"), list[str](), ""
        members = tool.schema.get("properties")
        for n, key in enumerate(members if isinstance(members, Mapping) else ()):
            part, schema = f"{name}_{n}", _member(tool.schema, key)
            parts.append(part if key in needed else f"{part}?")
            rules += f"{part}: {spell(self.key)} {quoted(key)} {spell(self.value)} {part}_value\n"
            if _is_text(schema):
                rules += f"{part}_value[lazy]: /(.|\\n)*/ {quoted(self.done)}\n"
            else:
                rules += f"{part}_value: {by_schema(schema)} {spell(self.done)}\n"
        return f"{name}: {quoted(tool.name)} {spell(self.middle)} SPACE? {' '.join(parts)}\n{rules}"


def _known(name: Any, tools: Collection[str]) -> str:
    if not isinstance(name, str) or name not in tools:
        raise WrongError("no tool has this name")
    return name


def _object(value: Any, written: str) -> str:
    """Arguments as they are written: an object, or a string that has one. None is no arguments."""
    if value is None:
        return "{}"
    if isinstance(value, str):
        scan = Scan(value)
        try:
            value, written = scan.json()
            written.encode()  # escapes in a string may be halves of characters
        except (MoreError, UnicodeEncodeError):
            value = None
    if not isinstance(value, dict):
        raise WrongError("arguments are an object")
    return written


def _member(schema: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The schema of an argument, which may name definitions of the whole."""
    members = schema.get("properties")
    found = members.get(key) if isinstance(members, Mapping) else None
    shared = {k: schema[k] for k in ("$defs", "definitions") if k in schema}
    return {**shared, **found} if isinstance(found, Mapping) else {}


def _is_text(schema: Mapping[str, Any]) -> bool:
    """Whether an argument is written as it is, and not as JSON."""
    return schema.get("type") == "string" or all(
        isinstance(v, str) for v in _several(schema, "enum") or (0,)
    )


def _several(schema: Mapping[str, Any], key: str) -> Sequence[Any]:
    """What a schema lists under a key; nothing where that is no list."""
    found = schema.get(key)
    return found if isinstance(found, list | tuple) else ()


def _written(text: str, schema: Mapping[str, Any]) -> str:
    """An argument that is written so, in JSON: as it is where it is JSON of a kind that it may
    have, else as a string."""
    scan = Scan(text)
    try:
        value, written = scan.json()
        scan.space()
    except (MoreError, WrongError):
        return quoted(text)
    kinds = _kinds(schema)
    other = "string" in kinds and not kinds & _KINDS[type(value)]
    return quoted(text) if scan.at < len(text) or _is_text(schema) or other else written


_KINDS: dict[type, set[str]] = {
    str: {"string"}, bool: {"boolean"}, int: {"integer", "number"}, float: {"number"},
    dict: {"object"}, list: {"array"}, type(None): {"null"},
}  # fmt: skip
"""What JSON schemas call values."""


def _kinds(schema: Any) -> set[str]:
    """The kinds of values that a schema names."""
    if not isinstance(schema, Mapping):
        return set()
    named = (schema.get("type"), *_several(schema, "type"))
    others = (*_several(schema, "anyOf"), *_several(schema, "oneOf"))
    return {k for k in named if isinstance(k, str)}.union(*map(_kinds, others))


_WRITTEN = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Templates show models JSON as Python writes it, so answers are to have it so."""


def quoted(text: str) -> str:
    """A text in Lark."""
    return json.dumps(text, ensure_ascii=False)


def by_schema(schema: Mapping[str, Any]) -> str:
    """JSON by a schema, in Lark as llguidance has it."""
    own = schema.get("x-guidance")
    options = {**_WRITTEN, **(own if isinstance(own, Mapping) else {})}
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def _deepseek(word: str) -> str:
    """The token of a word, which has other bars and spaces than it seems."""
    return f"<|{word}|>".replace("|", "\uff5c").replace(" ", "\u2581")


_WRAPPED = "<tool_calls>"
"""Around calls of Hunyuan's, which are written in ways of their own."""

SPELLINGS: tuple[Spelling, ...] = (
    Tagged(
        "qwen3-coder", ("<tool_call>", "<function=", "<parameter="),
        begin="<tool_call>\n<function=", middle=">", key="\n<parameter=", value=">\n",
        done="\n</parameter>", end="\n</function>\n</tool_call>",
    ),
    Tagged(
        "glm", ("<tool_call>", "<arg_key>"),
        begin="<tool_call>", key="<arg_key>", value="</arg_key>\n<arg_value>",
        done="</arg_value>\n", end="</tool_call>", other=_WRAPPED,
    ),
    InJson(
        "hermes", ("<tool_call>",),
        begin="<tool_call>\n", end="\n</tool_call>", other=_WRAPPED,
    ),
    AfterName(
        "functionary", ("<function=",),
        begin="<function=", middle=">", end="</function>", between="",
    ),
    AfterName(
        "mistral-args", ("[TOOL_CALLS]", "[ARGS]"),
        begin="[TOOL_CALLS]", middle="[ARGS]", between="",
    ),
    InJson(
        "mistral", ("[TOOL_CALLS]",),
        opening="[TOOL_CALLS] [", between=", ", closing="]",
    ),
    InJson(
        "phi", ("<|tool_call|>", "<|/tool_call|>"),
        opening="<|tool_call|> [", between=", ", closing="] <|/tool_call|>",
    ),
    InJson(
        "granite", ("<|tool_call|>",),
        opening="<|tool_call|> [", between=", ", closing="]",
    ),
    InJson(
        "command-r", ("<|START_ACTION|>",),
        opening="<|START_ACTION|> [", between=", ", closing="] <|END_ACTION|>",
        keys=("tool_name", "parameters"),
    ),
    AfterName(
        "deepseek", (_deepseek("tool calls begin"), "```json"),
        opening=_deepseek("tool calls begin"), closing=_deepseek("tool calls end"),
        begin=f"{_deepseek('tool call begin')}function{_deepseek('tool sep')}",
        middle="\n```json\n", end=f"\n```{_deepseek('tool call end')}",
    ),
    AfterName(
        "deepseek-3.1", (_deepseek("tool calls begin"), _deepseek("tool sep")),
        opening=_deepseek("tool calls begin"), closing=_deepseek("tool calls end"),
        begin=_deepseek("tool call begin"), middle=_deepseek("tool sep"),
        end=_deepseek("tool call end"), between="",
    ),
    InJson(
        "llama", ('"parameters": ', "ipython"), between=None, keys=("name", "parameters"),
        first=True, before="<|python_tag|>",
    ),
)  # fmt: skip
"""The first whose signs are there is a template's."""


def spelling_of(template: str) -> Spelling:
    """How a model with a chat template writes calls. ModelError if that is not known."""
    for spelling in SPELLINGS:
        if spelling.other and spelling.other in template:
            continue
        if all(sign in template for sign in spelling.signs):
            return spelling
    known = ", ".join(dict.fromkeys(s.name for s in SPELLINGS))
    raise ModelError(
        "the chat template does not show how the model writes calls of tools in a way that is"
        f" known ({known})"
    )

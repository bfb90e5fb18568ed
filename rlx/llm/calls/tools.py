"""The tools of a request, and the grammar of answers that must call them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import GraphError, ModelError, did_you_mean
from rlx.llm.calls.reader import CallReader
from rlx.llm.calls.scan import NAME
from rlx.llm.calls.spelling import Function, Spelling, by_schema, quoted, spelling_of
from rlx.llm.text import Tokenizer

__all__ = ["Tools"]

CHOICES = ("auto", "none", "required")
LENIENT = {"x-guidance": {"lenient": True}}
"""What a schema asks for that no grammar can say is left to the model, unless it is strict."""


@frozen
class Tools:
    """Tools that an answer may call.

    ``definitions`` are as the API of OpenAI has them, ``{"type": "function", "function": {"name":
    …, "description": …, "parameters": a JSON schema}}``. ``choice`` is "auto", "required" for one
    call or more, or the name of the one that is called; ``parallel`` says whether an answer may
    have several calls.
    """

    definitions: tuple[Mapping[str, Any], ...]
    functions: Mapping[str, Function]
    choice: str
    parallel: bool
    tokenizer: Tokenizer
    spelling: Spelling

    @staticmethod
    def of(
        tokenizer: Callable[[], Tokenizer], definitions: Any, choice: Any, parallel: bool
    ) -> Tools | None:
        """Tools as they are given; None for none, and where ``choice`` is "none". GraphError for
        what is no list of tools, or a choice that there is not; ModelError where the model's chat
        template takes none, or does not show how calls are written."""
        choice = "auto" if choice is None else choice
        if not definitions:
            if choice not in ("auto", "none"):
                raise GraphError(f"tool_choice is {choice!r}, and there are no tools")
            return None
        if not isinstance(definitions, Sequence) or isinstance(definitions, str):
            raise GraphError(f"tools are a list, found {type(definitions).__name__}")
        functions: dict[str, Function] = {}
        for n, definition in enumerate(definitions):
            found = _function(definition, f"tools[{n}]")
            if found.name in functions:
                raise GraphError(f"tools[{n}]: there is a tool {found.name!r} already")
            functions[found.name] = found
        if not isinstance(choice, str) or choice not in (*CHOICES, *functions):
            known = [*CHOICES, *functions]
            raise GraphError(
                f"tool_choice is one of {', '.join(known)}, found {choice!r}"
                f"{did_you_mean(str(choice), known)}"
            )
        if choice == "none":
            return None
        template = tokenizer().template(tools=True)
        if not template.takes_tools:
            raise ModelError("the model's chat template has no place for tools")
        return Tools(
            tuple(definitions), functions, choice, parallel, tokenizer(),
            spelling_of(template.source),
        )  # fmt: skip

    @property
    def callable(self) -> Mapping[str, Function]:
        """The tools that may be called."""
        named = self.functions.get(self.choice)
        return self.functions if named is None else {named.name: named}

    @property
    def reader(self) -> CallReader:
        """What tells calls from other text."""
        return CallReader(self.spelling, self.callable)

    @property
    def kept(self) -> list[str]:
        """The special tokens that calls are written with."""
        return [token for token in self._special if any(token in p for p in self.spelling.parts)]

    @property
    def _special(self) -> dict[str, int]:
        return {str(self.tokenizer.token(n)): n for n in self.tokenizer.special_ids}

    def limits(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What an answer must meet, where it is ``given`` what one without calls must: an answer
        may be anything but for tools that are asked for, strict ones, and at most one call.
        GraphError for tools beside a grammar or a regular expression."""
        for name in ("regex", "grammar"):
            if given[name] is not None:
                raise GraphError(f"an answer has tools or a {name}, not both")
        content = given["json_schema"]
        strict = any(d["function"].get("strict") for d in self.definitions)
        if self.choice == "auto" and self.parallel and not strict and content is None:
            return given
        return {"grammar": self._grammar(content)}

    def _grammar(self, content: Mapping[str, Any] | bool | None) -> str:
        """It in Lark."""
        spelling, special = self.spelling, self._special

        def spell(text: str) -> str:
            return _joined(*(_word(word, special) for word in text.split()))

        names = {f"call_{n}": tool for n, tool in enumerate(self.callable.values())}
        rules = "".join(spelling.rule(name, tool, spell) for name, tool in names.items())
        mark, call = spelling.mark, _joined(f"({' | '.join(names)})", spell(spelling.end))
        begin = f"{spelling.opening} {spelling.begin}".strip().removeprefix(mark)
        more = ""
        if self.parallel and spelling.between is not None and self.choice in CHOICES:
            more = f"(SPACE? {_joined(*map(spell, (spelling.between, spelling.begin)), call)})*"
        unit = f"{_joined(spell(begin), call)} {_joined(more, spell(spelling.closing))}"
        return f"{self._start(content)}unit: {unit}\n{rules}SPACE: /[ \\n]/\n"

    def _start(self, content: Mapping[str, Any] | bool | None) -> str:
        """The rule of an answer: calls, or before them and without them text."""
        mark, special = self.spelling.mark, self._special
        begun = _word(mark, special) if mark else ""
        if self.choice != "auto":
            return f"start: {begun} unit\n"
        if content is not None:
            schema = content if isinstance(content, Mapping) else {}
            return f"start: {by_schema(schema)} | {begun} unit\n"
        if self.spelling.first:
            return "start: TEXT | unit\nTEXT: /([^{](.|\\n)*)?/\n"
        head = f"head: TEXT {begun}" if mark in special else f"head[lazy]: TEXT {begun}"
        return f"start: TEXT | head unit\n{head}\nTEXT: /(.|\\n)*/\n"


def _word(word: str, special: Mapping[str, int]) -> str:
    """A word in Lark, in which special tokens stand for themselves."""
    if not special:
        return quoted(word)
    parts = re.split("(" + "|".join(map(re.escape, sorted(special, key=len)[::-1])) + ")", word)
    return " ".join(f"<[{special[p]}]>" if p in special else quoted(p) for p in parts if p)


def _joined(*rules: str) -> str:
    """Rules one after the other, with space between them or without."""
    return " SPACE? ".join(rule for rule in rules if rule)


def _function(definition: Any, where: str) -> Function:
    """A tool of the only kind that there is. GraphError for what is none."""
    kind = definition.get("type") if isinstance(definition, Mapping) else None
    if kind != "function":
        raise GraphError(f"{where} is an object of type 'function', found {kind!r}")
    function = definition.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not NAME.fullmatch(name):
        raise GraphError(
            f"{where}.function.name is 1 to 64 letters, digits, '_', '-' and '.', found {name!r}"
        )
    schema = function.get("parameters")
    schema = {"type": "object"} if schema is None else schema
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise GraphError(f"{where}.function.parameters is the JSON schema of an object")
    whole = {"type": "object", **schema}
    return Function(name, whole if function.get("strict") else {**LENIENT, **whole})

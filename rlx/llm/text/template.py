"""Conversations to prompts, by the template that comes with a model.

A template is a program that whoever made the file wrote: it runs in jinja2's sandbox, sees nothing
but plain data, and has what Hugging Face gives it: ``tojson``, ``raise_exception``,
``strftime_now``, loop controls, and ``{% generation %}``, which marks what the assistant says.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from rlx.base.cached import cached_property
from rlx.errors import GraphError, ModelError

__all__ = ["ChatTemplate"]

REASONING = ("reasoning_content", "thinking", "reasoning")
"""The names under which a message's reasoning comes; templates read the first, some the second."""

SPANS: ContextVar[list[int] | None] = ContextVar("spans", default=None)
"""The lengths of the parts in ``{% generation %}``, while somebody asks for them."""

NONCE = os.urandom(8).hex()
MARK = re.compile(f"\x02{NONCE}:(\\d+)\x03")
"""What stands before such a part until it is found: no message can have it in its text."""


class ChatTemplate:
    """A template, compiled on first use.

    ``source`` is its text; ``tokens`` are the special tokens that it may name, such as
    ``bos_token``.
    """

    def __init__(self, source: str, tokens: Mapping[str, Any] | None = None) -> None:
        self.source, self.tokens = source, dict(tokens or {})
        self._compiled: Any = None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **values: Any,
    ) -> str:
        """The prompt for a conversation. ``values`` are what this template knows besides, such as
        ``enable_thinking``.

        GraphError if messages have another form or the template refuses them; ModelError if the
        template is wrong itself.
        """
        template = self._template()
        seen = {
            "messages": _messages(messages),
            "tools": _plain(tools),
            "documents": _plain(documents),
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return template.render(**{**self.tokens, **_plain(values), **seen})
        except _RefusedError as e:
            raise GraphError(f"the chat template refuses the conversation: {e}") from None
        except Exception as e:  # a template is a program, and may fail in any way
            raise GraphError(
                f"the chat template fails on the conversation: {type(e).__name__}: {e}"
            ) from None

    @cached_property
    def arguments_are_text(self) -> bool:
        """Whether calls in a conversation must have their arguments as text of JSON. Most templates
        want an object."""
        own = self._shown({"x": 1})
        refused = own is None or "{'x': 1}" in own  # as Python writes it, which is no JSON
        return refused and self._shown('{"x": 1}') is not None

    @cached_property
    def takes_tools(self) -> bool:
        """Whether it reads ``tools``; those of a message alone, or in a comment, do not count."""
        from jinja2 import meta

        self._template()  # which says what is wrong with it
        return "tools" in meta.find_undeclared_variables(_environment().parse(self.source))

    def _shown(self, arguments: Any) -> str | None:
        """A conversation with a call; None if it is refused."""
        try:
            return self.render(_called(arguments))
        except GraphError:
            return None

    def spans(
        self, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> tuple[str, list[tuple[int, int]]]:
        """The prompt as ``render`` gives it, and the start and end of each part of it in
        ``{% generation %}``, in characters."""
        lengths: list[int] = []
        options = {"add_generation_prompt": False, **options}
        token = SPANS.set(lengths)
        try:
            marked = self.render(messages, **options)
        finally:
            SPANS.reset(token)
        text, at = "", 0
        spans: list[tuple[int, int]] = []
        for mark in MARK.finditer(marked):
            text += marked[at : mark.start()]
            spans.append((len(text), len(text) + lengths[int(mark[1])]))
            at = mark.end()
        return text + marked[at:], spans

    def _template(self) -> Any:
        if self._compiled is None:
            from jinja2.exceptions import TemplateSyntaxError

            environment = _environment()
            try:
                self._compiled = environment.from_string(self.source)
            except TemplateSyntaxError as e:
                raise ModelError(f"the chat template, line {e.lineno}: {e.message}") from None
        return self._compiled


def _called(arguments: Any) -> list[dict[str, Any]]:
    """A conversation with a call."""
    function = {"name": "f", "arguments": arguments}
    call = {"id": "123456789", "type": "function", "function": function}
    return [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "1", "tool_call_id": "123456789", "name": "f"},
    ]


def _messages(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise GraphError(
            "a conversation is a list of messages such as {'role': 'user', 'content': 'Hello'},"
            f" and not empty; found {type(messages).__name__}"
        )
    found: list[dict[str, Any]] = []
    for n, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise GraphError(f"message {n} is no dict with a role")
        kept = {str(k): _plain(v) for k, v in message.items() if v is not None}
        reasoning = next((kept[k] for k in REASONING if k in kept), None)
        if reasoning is not None:
            kept = {"thinking": reasoning, **kept, "reasoning_content": reasoning}
        found.append(kept)
    return found


def _plain(value: Any) -> Any:
    """A copy of plain data. What a template could call is not passed on but by its type's name."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return f"<{type(value).__name__}>"


class _RefusedError(Exception):
    """What a template's ``raise_exception`` raises."""


def _refuse(message: str) -> None:
    raise _RefusedError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is: jinja2's own filter escapes what HTML does."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment() -> Any:
    try:
        from jinja2 import nodes
        from jinja2.ext import Extension
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ModelError(
            "chat templates need the package jinja2: pip install 'rlx[models]'"
        ) from None

    class Generation(Extension):
        """``{% generation %} ... {% endgeneration %}``: what the assistant says."""

        tags = {"generation"}  # noqa: RUF012 # jinja2 reads the class

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            call = self.call_method("_said")
            return nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _said(self, caller: Any) -> str:
            text = caller()
            spans = SPANS.get()
            if spans is None:
                return text
            spans.append(len(text))
            return f"\x02{NONCE}:{len(spans) - 1}\x03{text}"

    made: Any = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _refuse
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made

# ruff: noqa: E501
"""Chat templates, judged by transformers on templates that it ships and on ours."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="chat templates need the package jinja2")

from rlx.errors import GraphError, ModelError
from rlx.llm.text import ChatTemplate

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
HELLO = {"role": "user", "content": 'Hello <b>& "you"</b>, é'}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "a town"}},
            "required": ["place"],
        },
    },
}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "weather", "arguments": {"place": "Köln"}},
        }
    ],
}
CHATS: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([HELLO], {}),
    ([HELLO], {"add_generation_prompt": True}),
    ([{"role": "system", "content": "Be brief."}, HELLO, {"role": "assistant", "content": " Hi "},
      {"role": "user", "content": "More"}], {"add_generation_prompt": True}),
    ([HELLO, CALL, {"role": "tool", "name": "weather", "tool_call_id": "call_1", "content": "rain"}],
     {"tools": [TOOL], "add_generation_prompt": True}),
    ([HELLO, {"role": "assistant", "content": "x", "reasoning": "because"}, HELLO],
     {"add_generation_prompt": True, "enable_thinking": False}),
    ([{"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]}], {}),
    ([{"role": "assistant", "content": "first"}], {}),
]  # fmt: skip

OURS = {
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '')"
        " + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "blocks": (
        "{%- set ns = namespace(n=0) %}\n{%- for m in messages %}\n    {%- if m.role == 'system' %}\n"
        "        {%- continue %}\n    {%- endif %}\n    {%- set ns.n = ns.n + 1 %}\n"
        "[{{ ns.n }}] {{ m['content'] | string | trim }}\n{% endfor -%}\n"
    ),
    "tools": (
        "{% if tools %}{% for t in tools %}{{ t | tojson(indent=2) }}\n{% endfor %}{% endif %}"
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments | tojson }}{% endfor %}{{ m | tojson(sort_keys=true) }}{% endfor %}"
    ),
    "refuses": (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles alternate') }}{% endif %}{{ bos_token }}{{ m.content }}{% endfor %}"
    ),
    "reasoning": (
        "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|{{ 'content' in m }}"
        "{% endfor %}{{ enable_thinking is defined }}"
    ),
    "date": "{{ strftime_now('%Y') | length }}{% if documents %}{{ documents }}{% endif %}",
    "generation": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
        "{% endfor %}"
    ),
    "macros": (
        "{% macro show(x) %}{% if x is mapping %}{% for k, v in x | dictsort %}{{ k }}={{ show(v) }};"
        "{% endfor %}{% else %}{{ x }}{% endif %}{% endmacro %}"
        "{% for m in messages | reverse %}{{ show(m) }}{% endfor %}{{ (dict(a=1))['a'] }}"
    ),
}  # fmt: skip


def shipped() -> Iterator[tuple[str, str]]:
    """The chat templates among the string literals of the package transformers."""
    package = pytest.importorskip("transformers", reason="the judge of templates is transformers")
    for path in sorted(Path(package.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "{%" not in text or "messages" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                source = node.value
                if "{%" in source and "message" in source and "endfor" in source:
                    yield f"{path.stem}:{node.lineno}", source


def both(source: str, messages: Any, options: dict[str, Any]) -> tuple[str | None, str | None]:
    """What transformers and we make of a conversation; None where it is refused."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    options = {"add_generation_prompt": False, **options}
    try:
        kept = utils._normalize_chat_messages(messages)
        theirs = utils.render_jinja_template([kept], chat_template=source, **TOKENS, **options)[0][
            0
        ]
    except Exception:
        theirs = None
    try:
        ours = ChatTemplate(source, TOKENS).render(messages, **options)
    except (GraphError, ModelError):
        ours = None
    return theirs, ours


@pytest.mark.parametrize("name", OURS)
def test_our_templates(name: str) -> None:
    results = [both(OURS[name], *chat) for chat in CHATS]
    assert all(theirs == ours for theirs, ours in results)
    assert any(theirs is not None for theirs, _ in results)


def test_shipped_templates() -> None:
    found = list(shipped())
    assert found, "transformers ships no templates any more"
    rendered = 0
    for where, source in found:
        for messages, options in CHATS:
            theirs, ours = both(source, messages, options)
            assert theirs == ours, where
            rendered += theirs is not None
    assert rendered > len(found)


def test_spans_of_what_the_assistant_says() -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = [
        HELLO,
        {"role": "assistant", "content": "Hi"},
        HELLO,
        {"role": "assistant", "content": ""},
    ]
    text, spans = ChatTemplate(OURS["generation"], TOKENS).spans(messages)
    theirs, marks = utils.render_jinja_template(
        [messages], chat_template=OURS["generation"], return_assistant_tokens_mask=True, **TOKENS
    )
    assert (text, spans) == (theirs[0], marks[0])
    assert [text[a:b] for a, b in spans] == ["Hi</s>", "</s>"]


# -- what is refused, and what the sandbox keeps in -------------------------------------------


def test_what_a_template_refuses() -> None:
    with pytest.raises(GraphError, match="refuses the conversation: roles alternate"):
        ChatTemplate(OURS["refuses"]).render([{"role": "assistant", "content": "x"}])
    with pytest.raises(GraphError, match="fails on the conversation: UndefinedError"):
        ChatTemplate("{{ messages[0].a.b }}").render([HELLO])
    with pytest.raises(ModelError, match="the chat template, line 2: "):
        ChatTemplate("x\n{% if %}").render([HELLO])


@pytest.mark.parametrize(
    ("messages", "says"),
    [([], "not empty; found list"), ("hello", "found str"), ([{"content": "x"}], "message 0 is no dict with a role")],
)  # fmt: skip
def test_what_is_no_conversation(messages: Any, says: str) -> None:
    with pytest.raises(GraphError, match=says):
        ChatTemplate("x").render(messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{% for x in range(1000000) %}{% endfor %}",
        "{{ messages[0].content.open() }}",
    ],
)
def test_the_sandbox(source: str) -> None:
    opened: list[int] = []

    class Media:
        def open(self) -> None:
            opened.append(1)

    with pytest.raises(GraphError, match="fails on the conversation"):
        ChatTemplate(source).render([{"role": "user", "content": Media()}])
    assert not opened


def test_plain_data_of_other_types() -> None:
    class Name(str):
        pass

    class Number(int):
        pass

    found = ChatTemplate("{{ messages | tojson }}").render(
        [{"role": Name("user"), "content": (Number(3), 1.5, True), "media": {"x": b"raw"}}]
    )
    assert found == '[{"role": "user", "content": [3, 1.5, true], "media": {"x": "<bytes>"}}]'


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModelError, match=r"jinja2: pip install 'rlx\[models\]'"):
        ChatTemplate("x").render([HELLO])

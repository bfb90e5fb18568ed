"""Calls of tools: over loopback with the client of OpenAI, and in each way that models write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
pytest.importorskip("uvicorn", reason="serving needs the package uvicorn")
pytest.importorskip("starlette", reason="serving needs the package starlette")
pytest.importorskip("openai", reason="the judge is the package openai")
pytest.importorskip("llguidance", reason="calls that must be made need the package llguidance")

import openai

import rlx
from rlx.errors import GraphError, ModelError, ShapeError
from rlx.llm.calls import CallReader, spelling_of
from rlx.llm.calls.spelling import SPELLINGS, Function
from rlx.llm.text import ChatTemplate
from support.served import Served
from support.tiny_llm import write_talker

TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}<|start|>"
    "{{ m.role }}: {{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>\n{{ {'name':"
    " c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant: {% endif %}"
)
SIDE = {"type": "object", "properties": {"side": {"$ref": "#/$defs/side"}}, "required": ["side"],
        "additionalProperties": False, "$defs": {"side": {"enum": ["left", "right"]}}}  # fmt: skip
STEPS = {"type": "object", "properties": {"steps": {"enum": [1, 2]}}, "required": ["steps"],
         "additionalProperties": False}  # fmt: skip


def tool(name: str, schema: Any = None, **other: Any) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": schema, **other}}


TOOLS = [tool("turn", SIDE), tool("go", STEPS)]
ASK: Any = [{"role": "user", "content": "Where?"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = write_talker(tmp_path_factory.mktemp("talker"), TEMPLATE, max_position_embeddings=512)
    found = Served(rlx.LLM(folder, threads=1, context=512, tokens=2048, sequences=8))
    yield found
    found.stop()


def chat(served: Served, **options: Any) -> Any:
    given: dict[str, Any] = {"messages": ASK, "tools": TOOLS, "max_tokens": 250, **options}
    return served.client.chat.completions.create(model="talker", **given)


def right(call: Any) -> str:
    """The name of a call whose arguments are as its schema says."""
    arguments = json.loads(call.function.arguments)
    assert len(call.id) == 9 and call.id.isalnum() and call.type == "function"
    if call.function.name == "turn":
        assert arguments["side"] in ("left", "right") and len(arguments) == 1
    else:
        assert call.function.name == "go" and arguments["steps"] in (1, 2)
    return call.function.name


def test_calls_that_must_be_made(served: Served) -> None:
    names: set[str] = set()
    for seed in range(8):
        found = chat(served, tool_choice="required", parallel_tool_calls=False, seed=seed)
        (choice,) = found.choices
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        (call,) = choice.message.tool_calls
        names.add(right(call))
    assert names == {"turn", "go"}
    named: Any = {"type": "function", "function": {"name": "go"}}
    choice = chat(served, tool_choice=named, n=2).choices[1]
    assert [right(call) for call in choice.message.tool_calls] == ["go"]
    assert choice.finish_reason == "stop", "as the API has it for a call asked for by name"


def test_streams_of_calls(served: Served) -> None:
    given: dict[str, Any] = {"tool_choice": "required", "seed": 7, "n": 2}
    whole = chat(served, **given)
    with served.client.chat.completions.stream(
        model="talker", messages=ASK, tools=TOOLS, max_tokens=250, **given
    ) as stream:
        for _ in stream:
            pass
        joined = stream.get_final_completion()
    counts: list[int] = []
    for own, found in zip(whole.choices, joined.choices, strict=True):
        calls, others = own.message.tool_calls, found.message.tool_calls
        assert [(c.function.name, c.function.arguments) for c in calls] == [
            (c.function.name, c.function.arguments) for c in others
        ]
        assert (own.message.content or "") == found.message.content
        assert own.finish_reason == found.finish_reason
        counts.append(len(calls))
        [right(call) for call in others]
    assert max(counts) > 1, "no answer has several calls"


def test_calls_that_may_be_made(served: Served) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["no"]}}}
    said: set[str] = set()
    for seed in range(6):
        given: dict[str, Any] = {"seed": seed, "parallel_tool_calls": False}
        (choice,) = chat(served, response_format=form, **given).choices
        for call in choice.message.tool_calls or ():
            said.add(right(call))
        assert choice.message.content in (None, '"no"')
        assert choice.finish_reason == ("stop" if choice.message.content else "tool_calls")
        said.add(choice.message.content or "")
    assert len(said) > 2, "no answer has a call, or all have"


CALL = '<tool_call>{"name": "turn", "arguments": {"side": "left"}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("Hello <tool_c", True), (f"I turn\n{CALL}", True), (CALL, True), (f"{CALL}\n{CALL}", True),
        (CALL.replace("turn", "sing"), False), (CALL.replace("left", "up"), False),
        (f"{CALL}And", False),
    ],
)  # fmt: skip
def test_strict_tools(text: str, fits: bool, served: Served) -> None:
    """An answer is text, or calls as they must be with text before."""
    llm = served.llm
    answer = llm.answer(ASK, tools=[tool("turn", SIDE, strict=True)])
    assert answer._matcher is not None
    ids = llm.tokenizer.encode(text, add_special=False)
    assert (answer._matcher.fitting(ids) == len(ids)) == fits
    assert llm.answer(ASK, tools=[tool("turn", SIDE)])._matcher is None


def test_tools_are_shown_and_calls_go_back(served: Served) -> None:
    plain = chat(served, tools=[], max_tokens=3).usage.prompt_tokens
    assert chat(served, max_tokens=3).usage.prompt_tokens == plain + len("turn go ")
    assert chat(served, tool_choice="none", max_tokens=3).usage.prompt_tokens == plain
    message = chat(served, tool_choice="required", seed=8).choices[0].message
    back = [*ASK, message, {"role": "tool", "tool_call_id": message.tool_calls[0].id,
                            "content": [{"type": "text", "text": "done"}]}]  # fmt: skip
    found = chat(served, messages=back, max_tokens=3)
    said = [f"<tool_call>\n{{\"name\": \"{c.function.name}\", \"arguments\": "
            f"{c.function.arguments}}}\n</tool_call>" for c in message.tool_calls]  # fmt: skip
    text = (
        f"turn go <|start|>user: Where?<|end|><|start|>assistant: {''.join(said)}<|end|>"
        "<|start|>tool: done<|end|><|start|>assistant: "
    )
    assert found.usage.prompt_tokens == len(served.llm.ids(text))


def test_in_python(served: Served) -> None:
    llm = served.llm
    found = llm.chat(ASK, tools=TOOLS, tool_choice="go", max_new_tokens=100)
    assert found.text == "" and [c.name for c in found.calls] == ["go"]
    cut = llm.chat(ASK, tools=TOOLS, tool_choice="go", max_new_tokens=30)
    assert cut.calls == () and cut.text is not None and cut.text.startswith("<tool_call>")
    for prompt in ("Hello", [1, 2]):
        with pytest.raises(GraphError, match="tools are for conversations"):
            llm.answer(prompt, tools=TOOLS)
    with pytest.raises(ShapeError, match="a prompt has one token or more"):
        llm.chat([], tools=TOOLS)
    with pytest.raises(GraphError, match="tools are a list, found int"):
        llm.chat(ASK, tools=3)
    with pytest.raises(GraphError, match="gives text alone"):
        llm.stream(ASK, tools=TOOLS)


def test_calls_go_back_in_python(served: Served) -> None:
    """Arguments as text, as ``Completion.calls`` has them, and as an object are one prompt."""
    llm, own = served.llm, {"steps": 1}
    said = [
        llm.ids([*ASK, {"role": "assistant", "tool_calls": [{"function": {"name": "go",
                                                                          "arguments": a}}]}])
        for a in (own, json.dumps(own))
    ]  # fmt: skip
    assert said[0] == said[1]
    for odd in ([{"name": "go", "arguments": {}}], None):  # which templates may know
        with suppress(GraphError):
            llm.ids([*ASK, {"role": "assistant", "tool_calls": odd}])
    with pytest.raises(GraphError, match="message 1 "):
        llm.ids([*ASK, 3])


NAMED = {"type": "function", "function": {}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no list": ({"tools": {}}, "tools is a list of objects, found an object"),
    "no objects": ({"tools": [1]}, "tools is a list of objects"),
    "kind": ({"tools": [{"type": "web_search"}]}, "of type 'function', found 'web_search'"),
    "name": ({"tools": [tool("a b")]}, "tools[0].function.name is 1 to 64 letters"),
    "schema": ({"tools": [tool("a", {"type": "string"})]}, "is the JSON schema of an object"),
    "twice": ({"tools": [tool("a"), tool("a")]}, "there is a tool 'a' already"),
    "choice": ({"tools": TOOLS, "tool_choice": "trun"}, "did you mean 'turn'?"),
    "a choice's name": ({"tools": TOOLS, "tool_choice": NAMED}, "tool_choice is a string, or"),
    "no tools": ({"tool_choice": "required"}, "is 'required', and there are no tools"),
    "regex": ({"tools": TOOLS, "regex": "a"}, "an answer has tools or a regex, not both"),
    "unsayable": (
        {"tools": [tool("a", {"properties": {"x": {"not": {}}}}, strict=True)]},
        "the grammar cannot be used",
    ),
    "old calls": (
        {"messages": [*ASK, {"role": "assistant", "function_call": {"name": "a"}}]},
        "messages[1] has a function_call, which is not supported; write it as tool_calls",
    ),
    "old answers": (
        {"messages": [*ASK, {"role": "function", "name": "a", "content": "1"}]},
        "messages[1] has a function_call",
    ),
    "calls": (
        {"messages": [*ASK, {"role": "assistant", "tool_calls": [{"function": {"name": "a"}}]}]},
        "messages[1].tool_calls are objects with function.name and function.arguments",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str, served: Served) -> None:
    body, says = WRONG[name]
    status, found = served.ask("/v1/chat/completions", {"messages": ASK, **body})
    assert status == 400 and says in found["error"]["message"]


def test_templates_without_tools(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    templates = served.llm.tokenizer.templates
    for source, says in (
        ("{{ messages }}", "has no place for tools"),
        ("{{ tools }}", "does not show how the model writes calls"),
    ):
        monkeypatch.setitem(templates, "default", ChatTemplate(source))
        with pytest.raises(openai.BadRequestError, match=says):
            chat(served)


def test_templates_that_take_tools() -> None:
    for source, wanted in (
        ("{% if custom_tools is defined %}{% set tools = custom_tools %}{% endif %}"
         "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ messages }}", True),
        ("{% set tools = tools or [] %}{{ messages }}", True),
        ("{% macro m() %}{{ tools }}{% endmacro %}{{ m() }}", True),
        ("{{ messages[0]['tools'] }}{{ messages[0].tools }}{# tools #} tools", False),
    ):  # fmt: skip
        assert ChatTemplate(source).takes_tools == wanted, source


def test_templates_that_take_arguments_as_text() -> None:
    for source, wanted in (
        ("{{ messages[1].tool_calls[0].function.arguments.x }}", False),
        ("{{ 'x' + messages[1].tool_calls[0].function.arguments }}", True),
        ("{{ messages[0].a.b }}", False),
        ("{{ messages[1].tool_calls[0].function.arguments }}", True),
        ("{{ messages[1].tool_calls[0].function.arguments | tojson }}", False),
    ):
        assert ChatTemplate(source).arguments_are_text == wanted


# -- the ways that models write calls ------------------------------------------------------

FUNCTIONS = {
    name: Function(name, {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}})
    for name in ("f", "gh")
}


def _deepseek(text: str) -> str:
    return text.replace("|", "\uff5c").replace("_", "\u2581")


WRITTEN = {
    "qwen3-coder": "<tool_call>\n<function=f>\n<parameter=a>\nx\ny\n</parameter>\n<parameter=n>\n"
    "3\n</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x\ny</arg_value>\n<arg_key>n</arg_key>\n"
    "<arg_value>3</arg_value>\n</tool_call>",
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"a": "x\\ny", "n": 3}}\n</tool_call>',
    "functionary": '<function=f>{"a": "x\\ny", "n": 3}</function>',
    "mistral-args": '[TOOL_CALLS]f[ARGS]{"a": "x\\ny", "n": 3}',
    "mistral": '[TOOL_CALLS][{"name": "f", "arguments": {"a": "x\\ny", "n": 3}}]',
    "phi": '<|tool_call|>[{"name": "f", "arguments": {"a": "x\\ny", "n": 3}}]<|/tool_call|>',
    "granite": '<|tool_call|>[{"name": "f", "arguments": {"a": "x\\ny", "n": 3}}]',
    "command-r": '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters":'
    ' {"a": "x\\ny", "n": 3}}\n]<|END_ACTION|>',
    "deepseek": _deepseek("<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>f\n```json\n")
    + '{"a": "x\\ny", "n": 3}\n```'
    + _deepseek("<|tool_call_end|><|tool_calls_end|>"),
    "deepseek-3.1": _deepseek("<|tool_calls_begin|><|tool_call_begin|>f<|tool_sep|>")
    + '{"a": "x\\ny", "n": 3}'
    + _deepseek("<|tool_call_end|><|tool_calls_end|>"),
    "llama": '{"name": "f", "parameters": {"a": "x\\ny", "n": 3}}',
}  # fmt: skip
MORE = {
    "mistral": '[TOOL_CALLS] [{"arguments": "{\\"n\\": 1}", "name": "gh"},'
    '{"name":"f","arguments":{}}] ',
    "deepseek": WRITTEN["deepseek"].replace(
        end := _deepseek("<|tool_calls_end|>"),
        _deepseek("\n<|tool_call_begin|>function<|tool_sep|>gh\n```json\n{}\n```<|tool_call_end|>")
        + end,
    ),
    "llama": '<|python_tag|>{"name": "gh", "parameters": null}',
    "hermes": f"{WRITTEN['hermes']}\n"
    '<tool_call>{"name":"gh","arguments":{"n":[1e400]}}</tool_call> ',
}  # fmt: skip
NONE = {
    "hermes": [
        '<tool_call>{"name": "other", "arguments": {}}</tool_call>', "a <tool_call> is written so",
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "<tool_call>\n", "x <tool_c",
        '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "  \n",
        '<tool_call>{"name": "f", "arguments": {"a": }}</tool_call>',
        f'<tool_call>{{"name": "f", "arguments": {"[" * 9999}', '<tool_call>{3: 4}</tool_call>',
        f'<tool_call>{{"name": "f", "arguments": {{"n": {"1" * 5000}}}}}</tool_call>',
        r'<tool_call>{"name": "f", "arguments": "{\"a\": \"\ud800\"}"}</tool_call>',
    ],
    "llama": [
        '{"name": "x", "parameters": {}}', '{"city": "Köln"}', "Hi {", " ", "<|python_tag|>x",
    ],
    "functionary": [
        "<function=f>3</function>", "<function=>{}</function>",
        f"<function={'f' * 200}>{{}}</function>",
    ],
    "mistral": ["[TOOL_CALLS][]", '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name"'],
    "glm": ["<tool_call>f\n<arg_key>a</arg_key>x</tool_call>"],
}  # fmt: skip


def read(way: str, text: str, cuts: list[int]) -> tuple[str, list[tuple[str, Any]]]:
    """The other text and the calls of a text that comes in pieces."""
    reader = CallReader(next(s for s in SPELLINGS if s.name == way), FUNCTIONS)
    edges = [0, *sorted(c % (len(text) + 1) for c in cuts), len(text)]
    parts = [text[a:b] for a, b in pairwise(edges)]
    other = "".join(map(reader.add, parts)) + reader.end()
    return other, [(c.name, json.loads(c.arguments)) for c in reader.calls]


@pytest.mark.parametrize("way", [s.name for s in SPELLINGS])
@given(cuts=st.lists(st.integers(0, 400), max_size=12))
@settings(max_examples=25, deadline=None)
def test_ways_to_write_calls(way: str, cuts: list[int]) -> None:
    call = ("f", {"a": "x\ny", "n": 3})
    assert read(way, WRITTEN[way], cuts) == ("", [call])
    if way != "llama":
        assert read(way, f"Let me see.\n\n{WRITTEN[way]}\n", cuts) == ("Let me see.", [call])
    if way in MORE:
        other, calls = read(way, MORE[way], cuts)
        assert (other, "gh" in dict(calls)) == ("", True)
    for text in NONE.get(way, ()):
        assert read(way, text, cuts) == (text, []), "what is no call is text"


KINDS = Function("f", {"properties": {
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "either": {"type": ["string",
    "integer"]}, "number": {"type": "number"}, "text": {"type": "string"}, "any": {},
    "odd": {"type": 3, "enum": 4, "anyOf": 5},
}})  # fmt: skip


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("maybe", "42", '"42"'), ("maybe", "null", "null"), ("maybe", "true", '"true"'),
        ("maybe", '"42"', '"42"'), ("either", "42", "42"), ("either", "4.5", '"4.5"'),
        ("number", "NaN", '"NaN"'), ("number", "1e400", "1e400"), ("number", "3 4", '"3 4"'),
        ("text", "007", '"007"'), ("any", " [1, 2] ", "[1, 2]"), ("any", "[1,", '"[1,"'),
        ("odd", "1", "1"), ("any", r'"\ud800"', r'"\ud800"'),
    ],
)  # fmt: skip
def test_values_that_are_no_json_as_they_are_written(key: str, text: str, value: str) -> None:
    """What schemas let be text is that where it is of no other kind; all is JSON, and UTF-8."""
    reader = CallReader(next(s for s in SPELLINGS if s.name == "glm"), {"f": KINDS})
    said = f"<tool_call>f\n<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n</tool_call>"
    assert reader.add(said) + reader.end() == ""
    assert [c.arguments for c in reader.calls] == [f'{{"{key}": {value}}}']
    assert reader.calls[0].arguments.encode()


@pytest.mark.parametrize("way", [s.name for s in SPELLINGS])
def test_long_arguments_are_read_where_a_unit_may_end(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spelling = next(s for s in SPELLINGS if s.name == way)
    text, times = WRITTEN[way].replace("x", "x" * 300 + "{)" * 50, 1), list[int]()
    read, unit = CallReader(spelling, FUNCTIONS), type(spelling).unit
    monkeypatch.setattr(type(spelling), "unit", lambda *a: times.append(1) or unit(*a))
    assert "".join(map(read.add, text)) == "" and len(read.calls) == 1, "known with its last piece"
    assert len(times) < 300


@pytest.mark.parametrize("way", [s.name for s in SPELLINGS])
def test_a_call_that_is_cut_off_is_text(way: str) -> None:
    for end in range(1, len(WRITTEN[way])):
        assert read(way, WRITTEN[way][:end], [3, end // 2]) == (WRITTEN[way][:end], [])


@pytest.mark.parametrize("way", [s.name for s in SPELLINGS])
def test_grammars_let_through_what_is_read(way: str, served: Served) -> None:
    """And what their answers spell is read as calls, special tokens and all."""
    from rlx.llm.calls.tools import Tools

    spelling = next(s for s in SPELLINGS if s.name == way)
    schema = {**SIDE, "properties": {**SIDE["properties"], "n": {"type": "integer"}}}
    offered = Tools(
        (tool("turn", schema),), {"turn": Function("turn", schema)}, "turn", True,
        served.llm.tokenizer, spelling,
    )  # fmt: skip
    grammar = offered.limits(dict.fromkeys(("json_schema", "regex", "grammar")))["grammar"]
    for seed in range(2):
        answer = served.llm.generate("x", grammar=grammar, seed=seed, temperature=1.0)[0]
        reader = offered.reader
        assert reader.add(answer.text or "") + reader.end() == ""
        (call,) = reader.calls
        assert json.loads(call.arguments)["side"] in ("left", "right")


@pytest.mark.parametrize("way", [s.name for s in SPELLINGS])
def test_templates_tell_the_way(way: str) -> None:
    spelling = next(s for s in SPELLINGS if s.name == way)
    assert spelling_of(" ".join(spelling.signs)) is spelling
    with pytest.raises(ModelError, match="does not show how the model writes calls"):
        spelling_of("{{ tools }}")
    with pytest.raises(ModelError, match="does not show how the model writes calls"):
        spelling_of("{{ tools }}<tool_calls>\n<tool_call>{{ name }}<tool_sep>\n<arg_key>")

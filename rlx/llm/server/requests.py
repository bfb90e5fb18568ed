"""Bodies of requests to prompts and options of ``LLM.answer``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlx.base.frozen import frozen
from rlx.llm.answer import Answer
from rlx.llm.calls import calls_fit
from rlx.llm.model import LLM
from rlx.llm.sampling import TOP_LOGPROBS
from rlx.llm.server.fields import ApiError, Fields

__all__ = ["Asked", "Ranking", "chat", "completion", "embedding", "ranking"]

MOST_CHOICES, MOST_TEXTS = 16, 2048

_SHARED = (
    "model", "temperature", "top_p", "n", "stream", "stream_options", "stop", "presence_penalty",
    "frequency_penalty", "logit_bias", "logprobs", "seed", "user", "max_tokens", "best_of",
    "top_k", "min_p", "typical_p", "repetition_penalty", "ignore_eos", "regex", "grammar",
    "response_format", "speculate", "draft_tokens", "store", "metadata", "service_tier",
    "safety_identifier",
)  # fmt: skip
_COMPLETION = (*_SHARED, "prompt", "echo", "suffix")
_CHAT = (
    *_SHARED, "messages", "top_logprobs", "max_completion_tokens", "chat_template_kwargs", "tools",
    "tool_choice", "parallel_tool_calls", "functions", "function_call", "modalities", "audio",
    "prediction", "reasoning_effort", "web_search_options", "verbosity",
)  # fmt: skip
_RANKING = ("model", "query", "documents", "top_n", "return_documents", "user")
_EMBEDDING = ("model", "input", "encoding_format", "dimensions", "user")


@frozen
class Asked:
    """What a request asks for: ``answers``, ``choices`` of each prompt in turn; ``logprobs`` is how
    many alternatives of each token are told, None for no log probabilities at all. ``named``: the
    call of one tool is asked for by its name."""

    answers: tuple[Answer, ...]
    choices: int
    client: str
    stream: bool
    usage: bool
    logprobs: int | None
    model: str
    named: bool = False


def completion(llm: LLM, body: Any, model: str) -> Asked:
    """A request for completions."""
    f = Fields(body, _COMPLETION)
    f.refuse("echo", "suffix")
    logprobs = f.count("logprobs", 0, TOP_LOGPROBS)
    options = _options(f, llm)
    options["max_new_tokens"] = f.count("max_tokens", default=16)
    return _asked(llm, f, model, _texts(f, "prompt"), options, logprobs)


def chat(llm: LLM, body: Any, model: str) -> Asked:
    """A request for chat completions."""
    f = Fields(body, _CHAT)
    f.refuse("functions", "function_call", "audio", "prediction", "web_search_options")
    f.refuse("modalities", but=(None, ["text"]))
    f.refuse("reasoning_effort", "verbosity")
    logprobs = f.count("top_logprobs", 0, TOP_LOGPROBS)
    if logprobs is not None and not f.flag("logprobs"):
        raise ApiError("top_logprobs needs logprobs: true", param="top_logprobs")
    logprobs = (logprobs or 0) if f.flag("logprobs") else None
    options = _options(f, llm)
    longest = f.count("max_completion_tokens", default=f.count("max_tokens"))
    options["max_new_tokens"] = longest
    options["template"] = f.mapping("chat_template_kwargs")
    options["tools"], options["tool_choice"] = f.objects("tools"), _tool_choice(f)
    options["parallel_tool_calls"] = f.flag("parallel_tool_calls", default=True)
    messages = f.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError("messages is a list of one message or more", param="messages")
    conversation = [_message(m, n) for n, m in enumerate(messages)]
    asked = _asked(llm, f, model, [conversation], options, logprobs)
    return replace(asked, named=isinstance(f.get("tool_choice"), dict))


def embedding(body: Any, names: Sequence[str]) -> tuple[list[Any], bool, str]:
    """A request for embeddings by one of ``names``: its texts, each a string or ids; whether their
    vectors are asked for in base64; and the name."""
    f = Fields(body, _EMBEDDING)
    name = _named(f, names)
    f.refuse("dimensions")
    form = f.text("encoding_format", "float")
    if form not in ("float", "base64"):
        raise ApiError("encoding_format is float or base64", param="encoding_format")
    texts = _texts(f, "input")
    if len(texts) > MOST_TEXTS:
        raise ApiError(f"a request has {MOST_TEXTS} texts at most", param="input")
    return texts, form == "base64", name


@frozen
class Ranking:
    """What a request for a ranking asks for: the ``top`` best of ``documents``, or all; ``shown``:
    with their texts."""

    query: str
    documents: tuple[str, ...]
    top: int | None
    shown: bool


def ranking(body: Any, names: Sequence[str]) -> Ranking:
    """A request for a ranking by one of ``names``."""
    f = Fields(body, _RANKING)
    _named(f, names)
    query, given = f.text("query", None), f.get("documents")
    if query is None:
        raise ApiError("query is a string", param="query")
    listed = given if isinstance(given, list) else []
    texts = [d.get("text") if isinstance(d, dict) else d for d in listed]
    if not texts or not all(isinstance(t, str) for t in texts):
        raise ApiError(
            "documents is a list of strings, or of objects with a text", param="documents"
        )
    if len(texts) > MOST_TEXTS:
        raise ApiError(f"a request has {MOST_TEXTS} documents at most", param="documents")
    shown = f.flag("return_documents", default=True)
    return Ranking(query, tuple(map(str, texts)), f.count("top_n"), shown)


# -- parts ---------------------------------------------------------------------------------


def _adapter(llm: LLM, f: Fields, model: str) -> str | None:
    """The adapter whose name a request has for the model's."""
    asked = _named(f, (model, *llm.decoder.adapters))
    return None if asked == model else asked


def _named(f: Fields, names: Sequence[str]) -> str:
    """Which of ``names`` a request has for the model's, by default the first."""
    asked = f.text("model", names[0])
    if asked not in names:
        there = ", ".join(map(repr, names))
        raise ApiError(
            f"the model {asked!r} is not served here; there is {there}", status=404,
            param="model", code="model_not_found",
        )  # fmt: skip
    return asked


def _texts(f: Fields, name: str) -> list[Any]:
    """The texts of a field, which has one or a list of them."""
    given = f.get(name)
    texts = given if isinstance(given, list) and not _is_text(given) else [given]
    if not texts or not all(map(_is_text, texts)):
        raise ApiError(f"{name} is a string, a list of ids, or a list of these", param=name)
    return texts


def _is_text(given: Any) -> bool:
    """Whether it is a string or a list of ids."""
    if isinstance(given, list):
        return {*map(type, given)} == {int}
    return isinstance(given, str)


def _options(f: Fields, llm: LLM) -> dict[str, Any]:
    """Those of ``LLM.answer`` that both kinds of requests have."""
    f.refuse("store")
    f.refuse("service_tier", but=(None, "auto", "default"))
    options: dict[str, Any] = {
        "temperature": f.number("temperature", 1.0), "stop": f.texts("stop"),
        "ignore_eos": f.flag("ignore_eos"), "regex": f.text("regex", None),
        "grammar": f.text("grammar", None), "json_schema": _schema(f),
        "speculate": f.text("speculate", None), "draft_tokens": f.count("draft_tokens", 0, 64),
    }  # fmt: skip
    for name in ("top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
                 "frequency_penalty"):  # fmt: skip
        if (value := f.number(name)) is not None:
            options[name] = value
    for name in ("top_k", "seed"):
        if (value := f.count(name, 0, (1 << 63) - 1)) is not None:
            options[name] = value
    bias = f.mapping("logit_bias") or {}
    try:
        options["logit_bias"] = {int(n): float(b) for n, b in bias.items()}
    except (TypeError, ValueError, OverflowError):
        raise ApiError("logit_bias has numbers by ids", param="logit_bias") from None
    return options


def _schema(f: Fields) -> Mapping[str, Any] | bool | None:
    """The schema that a response format stands for."""
    asked = f.mapping("response_format")
    kind = None if asked is None else asked.get("type")
    if asked is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind == "json_schema":
        named = asked.get("json_schema")
        schema = named.get("schema") if isinstance(named, dict) else None
        if isinstance(schema, dict):
            return schema
        raise ApiError("response_format.json_schema has an object schema", param="response_format")
    raise ApiError(
        f"response_format.type is text, json_object or json_schema, found {kind!r}",
        param="response_format",
    )


def _tool_choice(f: Fields) -> str | None:
    """The tool that is asked for, or the word for which ones may be."""
    asked = f.get("tool_choice")
    if isinstance(asked, dict):
        function = asked.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if asked.get("type") != "function" or not isinstance(name, str):
            raise ApiError(
                "tool_choice is a string, or an object of type 'function' with function.name",
                param="tool_choice",
            )
        return name
    return f.text("tool_choice", None)


def _message(message: Any, n: int) -> dict[str, Any]:
    """A message whose content is text, and whose calls are such."""
    where = f"messages[{n}]"
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ApiError(f"{where} is an object with a role", param=where)
    if message.get("function_call") is not None or message["role"] == "function":
        raise ApiError(
            f"{where} has a function_call, which is not supported; write it as tool_calls, and the"
            " answer as a message of the role 'tool'",
            param=where, code="unsupported",
        )  # fmt: skip
    if not calls_fit(message.get("tool_calls")):
        raise ApiError(
            f"{where}.tool_calls are objects with function.name and function.arguments, a JSON"
            " object as a string",
            param=where,
        )
    content = message.get("content")
    if isinstance(content, list):
        kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
        wrong = next((k for k in kinds if k != "text"), "text")
        if wrong != "text" or not all(isinstance(part.get("text"), str) for part in content):
            raise ApiError(f"{where}.content has parts of text alone, found {wrong!r}", param=where)
        return {**message, "content": "".join(part["text"] for part in content)}
    if content is not None and not isinstance(content, str):
        raise ApiError(f"{where}.content is a string or a list of parts", param=where)
    return message


def _asked(
    llm: LLM,
    f: Fields,
    model: str,
    prompts: list[Any],
    options: dict[str, Any],
    logprobs: int | None,
) -> Asked:
    options["adapter"] = _adapter(llm, f, model)
    choices = f.count("n", 1, MOST_CHOICES, 1)
    if f.count("best_of", default=choices) != choices:
        raise ApiError("best_of is not supported, but for n", param="best_of", code="unsupported")
    if len(prompts) > MOST_CHOICES:
        raise ApiError(f"a request has {MOST_CHOICES} prompts at most", param="prompt")
    seed = options.pop("seed", None)
    answers: list[Answer] = []
    for prompt in prompts:
        for k in range(choices):
            own = {} if seed is None else {"seed": seed + k}
            answers.append(llm.answer(prompt, top_logprobs=logprobs or 0, **own, **options))
    usage = (f.mapping("stream_options") or {}).get("include_usage") is True
    client = f.text("user", "")
    return Asked(
        tuple(answers), choices, client, f.flag("stream"), usage, logprobs,
        options["adapter"] or model,
    )  # fmt: skip

"""The server over loopback, judged by the client of OpenAI, on a small random model."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
pytest.importorskip("uvicorn", reason="serving needs the package uvicorn")
pytest.importorskip("starlette", reason="serving needs the package starlette")
pytest.importorskip("openai", reason="the judge is the package openai")

import openai
from starlette.testclient import TestClient

import rlx
from rlx.errors import DeviceLostError, GraphError, ShapeError
from rlx.llm.pages import KvBlockTable
from rlx.llm.server import make_app
from rlx.llm.server.metrics import Metrics
from rlx.llm.server.worker import Job, Worker
from support.served import KEY, Served, until
from support.tiny_llm import write_talker
from support.tiny_lora import write_adapter

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = write_talker(tmp_path_factory.mktemp("talker"))
    shapes = {"model.layers.1.mlp.down_proj.weight": [32, 48], "model.embed_tokens.weight": [1, 1]}
    mine = write_adapter(folder / "mine", "layer", shapes, lora_alpha=64)
    found = Served(
        rlx.LLM(folder, threads=1, context=192, tokens=1024, sequences=8, adapters={"mine": mine})
    )
    yield found
    found.stop()


def test_models(served: Served) -> None:
    own, mine = served.client.models.list()
    assert (own.id, own.model_dump()["parent"]) == ("talker", None)
    assert (mine.id, mine.model_dump()["parent"]) == ("mine", "talker")
    assert served.client.models.retrieve("mine") == mine
    assert served.client.models.retrieve("talker").owned_by == "rlx"
    with pytest.raises(openai.NotFoundError, match="there is no model 'x'"):
        served.client.models.retrieve("x")


def test_answers_are_those_of_the_model(served: Served) -> None:
    given: dict[str, Any] = {"temperature": 0.7, "seed": 3, "top_p": 0.9}
    own = served.llm.generate("Hello", max_new_tokens=16, **given)[0]
    found = served.client.completions.create(model="talker", prompt="Hello", **given)
    assert found.choices[0].text == own.text
    assert found.choices[0].finish_reason == own.finish
    assert found.usage is not None
    assert found.usage.prompt_tokens == 5 and found.usage.completion_tokens == len(own.ids)
    chat = served.client.chat.completions.create(
        model="talker", messages=HELLO, max_completion_tokens=12, n=2, **given
    )
    wanted = [
        served.llm.chat(HELLO, max_new_tokens=12, **{**given, "seed": 3 + n}).text for n in (0, 1)
    ]
    assert [c.message.content for c in chat.choices] == wanted


def test_streams_are_whole_answers_in_parts(served: Served) -> None:
    given: dict[str, Any] = {
        "model": "talker", "messages": HELLO, "max_tokens": 24, "seed": 5, "n": 2,
        "logprobs": True, "top_logprobs": 2, "extra_body": {"ignore_eos": True},
    }  # fmt: skip
    whole: Any = served.client.chat.completions.create(**given)
    chunks = list(
        served.client.chat.completions.create(
            stream=True, stream_options={"include_usage": True}, **given
        )
    )
    assert chunks[-1].usage is not None and not chunks[-1].choices
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    for n, choice in enumerate(whole.choices):
        parts = [c for chunk in chunks for c in chunk.choices if c.index == n]
        assert parts[0].delta.role == "assistant"
        assert "".join(c.delta.content or "" for c in parts) == choice.message.content
        assert [c.finish_reason for c in parts if c.finish_reason] == [choice.finish_reason]
        told = [t for c in parts if c.logprobs for t in c.logprobs.content or ()]
        assert told == choice.logprobs.content and len(told) >= 20
        assert all(t.top_logprobs[0].logprob >= t.logprob for t in told)


def test_completions_of_several_prompts(served: Served) -> None:
    found = served.client.completions.create(
        model="talker", prompt=["One", "Two"], max_tokens=5, temperature=0, logprobs=1, n=2
    )
    own = [c.text for c in served.llm.generate(["One", "Two"], max_new_tokens=5)]
    assert [c.text for c in found.choices] == [own[0], own[0], own[1], own[1]]
    told = found.choices[0].logprobs
    assert told is not None and told.tokens is not None and told.text_offset is not None
    assert len(told.tokens) == len(told.token_logprobs or ()) <= 5
    ids = served.llm.ids("One")
    again = served.client.completions.create(
        model="talker", prompt=ids, max_tokens=5, temperature=0
    )
    assert again.choices[0].text == own[0]


def test_adapters_are_models(served: Served) -> None:
    given: dict[str, Any] = {"prompt": "Hello", "temperature": 0, "max_tokens": 12}
    plain = served.client.completions.create(model="talker", **given)
    found = served.client.completions.create(model="mine", **given)
    assert (plain.model, found.model) == ("talker", "mine")
    wanted = served.llm.generate("Hello", max_new_tokens=12, adapter="mine")[0].text
    assert found.choices[0].text == wanted != plain.choices[0].text
    chat = served.client.chat.completions.create(model="mine", messages=HELLO, max_tokens=3)
    assert chat.model == "mine"
    status, body = served.ask("/v1/completions", {"prompt": "x", "model": "your"})
    assert status == 404 and "there is 'talker', 'mine'" in body["error"]["message"]
    with pytest.raises(GraphError, match="the model and one of its adapters are called 'mine'"):
        make_app(served.llm, model="mine")


def test_speculation(served: Served) -> None:
    given: dict[str, Any] = {"model": "talker", "prompt": "x" * 40, "max_tokens": 20,
                             "temperature": 0}  # fmt: skip
    plain = served.client.completions.create(**given)
    given["extra_body"] = {"speculate": "lookup", "draft_tokens": 3}
    found = served.client.completions.create(**given)
    assert found.choices[0].text == plain.choices[0].text
    assert plain.usage is not None and found.usage is not None
    told = found.usage.completion_tokens_details
    assert told is not None and told.accepted_prediction_tokens
    none = plain.usage.completion_tokens_details
    assert none is not None and none.accepted_prediction_tokens == 0
    text = served.ask("/metrics", method="GET")[1]
    assert f"rlx_accepted_tokens_total {served.llm.batch.accepted}\n" in text
    status, body = served.ask("/v1/completions", {"prompt": "x", "speculate": "draft"})
    assert status == 400 and "there is no draft model" in body["error"]["message"]


def test_response_formats(served: Served) -> None:
    pytest.importorskip("llguidance", reason="grammars need the package llguidance")
    schema = {"type": "object", "properties": {"side": {"enum": ["left", "right"]}},
              "required": ["side"], "additionalProperties": False}  # fmt: skip
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    found = served.client.chat.completions.create(
        model="talker", messages=HELLO, response_format=form, seed=1, max_tokens=150
    )
    text = found.choices[0].message.content
    if found.choices[0].finish_reason == "stop":  # a random model may write spaces for ever
        assert json.loads(text or "")["side"] in ("left", "right")
    else:
        assert set(text or "") <= set('{"side":\n\t \r')


def test_embeddings(served: Served) -> None:
    status, body = served.ask("/v1/embeddings", {"model": "talker", "input": "Hello"})
    assert status == 400 and "does not say how it makes vectors" in body["error"]["message"]
    (Path(served.llm.path) / "1_Pooling").mkdir()
    (Path(served.llm.path) / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_mean_tokens": true}', encoding="utf-8"
    )
    found = served.client.embeddings.create(model="talker", input=["Hello", "You"])
    own = served.llm.embed(["Hello", "You"])
    for row, wanted in zip(found.data, own, strict=True):
        np.testing.assert_array_equal(np.array(row.embedding, np.float32), wanted)
    plain = served.client.embeddings.create(model="talker", input="You", encoding_format="float")
    np.testing.assert_array_equal(np.array(plain.data[0].embedding, np.float32), own[1])
    pool = served.llm.decoder.pool
    with served.llm.lock:
        served.llm.batch.schedule.prefix.evict(pool.capacity)
        held = KvBlockTable(pool.tokens_per_page)
        assert held.reserve(pool.free_count * pool.tokens_per_page, pool)
    try:
        status, body = served.ask("/v1/embeddings", {"input": "Hello"})
    finally:
        held.release(pool)
    assert status == 503 and body["error"]["code"] == "overloaded"
    assert "5 tokens have no room beside" in body["error"]["message"]
    assert served.ask("/v1/embeddings", {"input": "Hello"})[0] == 200


CHAT = "/v1/chat/completions"
WRONG: dict[str, tuple[str, Any, int, str]] = {
    "no json": (CHAT, b"{", 400, "the body is no JSON"),
    "no object": (CHAT, [1], 400, "the body is a JSON object, found a list"),
    "unknown": (CHAT, {"messages": HELLO, "temprature": 1}, 400, "did you mean 'temperature'"),
    "model": (CHAT, {"model": "gpt", "messages": HELLO}, 404, "'gpt' is not served here"),
    "messages": (CHAT, {}, 400, "messages is a list of one message or more"),
    "role": (CHAT, {"messages": [{"content": "x"}]}, 400, "messages[0] is an object with a role"),
    "content": (CHAT, {"messages": [{"role": "user", "content": 3}]}, 400, "content is a string"),
    "image": (
        CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400,
        "has parts of text alone, found 'image_url'",
    ),
    "kind": (CHAT, {"messages": HELLO, "temperature": "hot"}, 400, "a number, found a string"),
    "range": (CHAT, {"messages": HELLO, "temperature": -1}, 400, "temperature is a number from 0"),
    "choices": (CHAT, {"messages": HELLO, "n": 99}, 400, "n is from 1 to 16, found 99"),
    "stop": (CHAT, {"messages": HELLO, "stop": [1]}, 400, "stop is a string or a list of strings"),
    "bias": (CHAT, {"messages": HELLO, "logit_bias": {"a": 1}}, 400, "has numbers by ids"),
    "huge bias": (CHAT, {"messages": HELLO, "logit_bias": {"1": 10**400}}, 400, "numbers by ids"),
    "huge": (CHAT, {"messages": HELLO, "top_p": 10**400}, 400, "top_p is too large a number"),
    "store": (CHAT, {"messages": HELLO, "store": True}, 400, "store is not supported"),
    "tier": (CHAT, {"messages": HELLO, "service_tier": "flex"}, 400, "service_tier is not supp"),
    "functions": (CHAT, {"messages": HELLO, "functions": [{}]}, 400, "functions is not supported"),
    "logprobs": (CHAT, {"messages": HELLO, "top_logprobs": 1}, 400, "needs logprobs: true"),
    "format": (
        CHAT, {"messages": HELLO, "response_format": {"type": "xml"}}, 400,
        "text, json_object or json_schema, found 'xml'",
    ),
    "schema": (
        CHAT, {"messages": HELLO, "response_format": {"type": "json_schema"}}, 400,
        "json_schema has an object schema",
    ),
    "long": (CHAT, {"messages": HELLO, "max_tokens": 999}, 400, "have no room in a context of 192"),
    "prompt": ("/v1/completions", {"prompt": 3}, 400, "prompt is a string, a list of ids, or"),
    "messages for a prompt": ("/v1/completions", {"prompt": [HELLO]}, 400, "prompt is a string, a"),
    "prompts": ("/v1/completions", {"prompt": ["x"] * 17}, 400, "16 prompts at most"),
    "echo": ("/v1/completions", {"prompt": "x", "echo": True}, 400, "echo is not supported"),
    "best": ("/v1/completions", {"prompt": "x", "best_of": 3}, 400, "best_of is not supported"),
    "input": ("/v1/embeddings", {"input": []}, 400, "input is a string, a list of ids"),
    "messages for an input": ("/v1/embeddings", {"input": HELLO}, 400, "input is a string, a list"),
    "inputs": ("/v1/embeddings", {"input": ["x"] * 2049}, 400, "2048 texts at most"),
    "encoding": (
        "/v1/embeddings", {"input": "x", "encoding_format": "x"}, 400, "is float or base64"
    ),
    "form": ("/v1/embeddings", {"input": "x", "encoding_format": 3}, 400, "a string, found a numb"),
    "large": (CHAT, b" " * (1 << 20 | 1), 413, "a body has 1048576 bytes at most"),
    "route": ("/v1/nothing", {}, 404, "there is no POST /v1/nothing"),
    "method": ("/v1/models", {}, 405, "there is no POST /v1/models"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_malformed_requests(name: str, served: Served) -> None:
    path, body, wanted, says = WRONG[name]
    status, found = served.ask(path, body)
    assert status == wanted and says in found["error"]["message"]
    assert {*found["error"]} == {"message", "type", "param", "code"}
    assert (found["error"]["code"] == "context_length_exceeded") == (name == "long")


def test_who_may_ask(served: Served) -> None:
    for headers, wanted in (
        ({"Authorization": "Bearer x"}, 401), ({"Content-Type": "text/plain"}, 415),
        ({"Host": "example.com"}, 421),
    ):  # fmt: skip
        assert served.ask(CHAT, {"messages": HELLO}, **headers)[0] == wanted
    assert served.ask("/health", method="GET", Authorization="")[1] == {"status": "ok"}
    assert served.ask("/metrics", method="GET", Authorization="")[0] == 401


def test_too_many_at_a_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.app.state.server, "max_requests", 0)
    with pytest.raises(openai.RateLimitError, match="try again later"):
        served.client.completions.create(model="talker", prompt="Hello")
    with pytest.raises(openai.RateLimitError, match="try again later"):
        served.client.embeddings.create(model="talker", input="Hello")


def test_fields_that_change_nothing(served: Served) -> None:
    given: dict[str, Any] = {"messages": HELLO, "max_tokens": 4, "seed": 1}
    more = {"metadata": {"a": "b"}, "safety_identifier": "x", "parallel_tool_calls": True,
            "store": False, "service_tier": "auto"}  # fmt: skip
    found = [served.ask(CHAT, body)[1]["choices"] for body in (given, {**given, **more})]
    assert found[0] == found[1]


def test_keys_are_bytes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = "Bearer Schlüssel".encode()
    monkeypatch.setattr(served.app.state.server.access, "key", sent)
    assert served.ask("/metrics", method="GET", Authorization=sent.decode("latin-1"))[0] == 200


def test_health_without_the_thread(served: Served) -> None:
    with TestClient(make_app(served.llm, model="talker")) as client:
        assert client.get("/health").status_code == 200
    assert client.get("/health").status_code == 503


def test_steps_of_other_threads_are_told(served: Served) -> None:
    """The stream's answer ends in steps that another thread makes."""
    given: dict[str, Any] = {"max_tokens": 150, "seed": 2, "extra_body": {"ignore_eos": True}}
    options: dict[str, Any] = {"temperature": 1.0, "seed": 2, "ignore_eos": True}
    own = served.llm.generate("Hello", max_new_tokens=150, **options)[0]

    def beside() -> None:
        with served.llm.lock:
            served.llm.generate("You", max_new_tokens=170, ignore_eos=True)

    thread = threading.Thread(target=beside)
    stream = served.client.with_options(timeout=20).completions.create(
        model="talker", prompt="Hello", stream=True, logprobs=0, **given
    )
    parts: list[Any] = []
    for chunk in stream:
        if not parts:
            thread.start()
        parts += chunk.choices
    thread.join()
    assert "".join(part.text for part in parts) == own.text
    assert sum(len(part.logprobs.tokens) for part in parts if part.logprobs) == len(own.ids)
    assert parts[-1].finish_reason == own.finish


def test_no_answer_is_drawn_far_ahead_of_its_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that does something else finds few tokens more, and not the whole answer."""
    monkeypatch.setattr("rlx.llm.server.worker.PATIENCE", 20.0)
    worker, answer = Worker(served.llm, Metrics()), served.llm.answer("Hello", ignore_eos=True)
    served.llm.generate("Hello", max_new_tokens=4)  # nothing compiles later

    async def ask() -> int:
        worker.submit(job := Job([answer], ""))
        await job.events.get()
        time.sleep(0.5)  # as a loop that is busy does
        ahead = len(answer.ids)
        while (await job.events.get()).finish is None:
            pass
        return ahead

    worker.start()
    assert asyncio.run(ask()) < 6 < len(answer.ids)
    worker.stop()


def test_clients_that_go_away_free_their_pages(served: Served) -> None:
    """A stream that is closed, a request whose connection is cut, one that reads nothing."""
    stream = served.client.completions.create(
        model="talker", prompt="Hello", max_tokens=180, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    until(lambda: served.llm.batch.answers == 0)
    for body in ({}, {"stream": True}):
        asked = {"prompt": "Hello", "max_tokens": 180, "ignore_eos": True, **body}
        raw = served.send("/v1/completions", asked)
        until(lambda: served.llm.batch.answers)
        raw.close()
        until(lambda: served.llm.batch.answers == 0)
    until(lambda: served.pages == 0 and served.active == 0)


def test_many_requests_leave_nothing_used(served: Served) -> None:
    """A thousand, of 8 clients: long and short ones, streams, some left alone in the middle."""
    failed: list[Exception] = []

    def client(number: int) -> None:
        own = openai.OpenAI(base_url=served.client.base_url, api_key=KEY, max_retries=0)
        for n in range(125):
            try:
                found: Any = own.completions.create(
                    model="talker", prompt="x" * (1 + (n * 7 + number * 13) % 60), seed=n,
                    max_tokens=1 + n % 4, stream=n % 3 == 0, user=f"client {number % 3}",
                )  # fmt: skip
                if n % 3 == 0:
                    for _ in found:
                        if n % 9 == 0:
                            break
                    found.close()
            except Exception as e:
                failed.append(e)

    before = served.llm.batch.steps
    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
    until(lambda: served.llm.batch.answers == 0 and served.pages == 0 and served.active == 0)
    assert served.llm.batch.steps - before < 2000, "requests share steps"
    told = served.ask("/metrics", method="GET")[1]
    assert 'rlx_requests_total{path="/v1/completions",status="200"}' in told
    assert "rlx_sequences_running 0\n" in told and "rlx_first_token_seconds_bucket" in told
    lines = [line for line in told.splitlines() if not line.startswith("#")]
    assert all(float(line.rpartition(" ")[2]) >= 0 for line in lines)


def test_a_failing_step_is_told_and_the_next_request_served(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, kind, says in (
        (OSError("the engine broke"), openai.InternalServerError, "the server failed"),
        (DeviceLostError("it is gone"), openai.InternalServerError, "the server failed"),
        (ShapeError("it is too long"), openai.BadRequestError, "it is too long"),
    ):

        def broken(*_: Any, error: Exception = error) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(served.llm.batch.engine, "step", broken)
            with pytest.raises(kind, match=says):
                served.client.completions.create(model="talker", prompt="Hello")
            chunks = served.client.completions.create(model="talker", prompt="Hello", stream=True)
            with pytest.raises(openai.APIError, match=says):
                list(chunks)
    assert served.client.completions.create(model="talker", prompt="Hello").choices
    assert served.llm.batch.answers == 0


# -- ends ----------------------------------------------------------------------------------

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "Hello"}),
    ("/v1/completions", {"prompt": ["Hello", "You"], "n": 2}),
    ("/v1/chat/completions", {"messages": HELLO}),
    ("/v1/embeddings", {"input": "Hello"}),
]


def refused(client: TestClient, says: str) -> None:
    for path, body in ASKED:
        reply = client.post(path, json=body)
        assert reply.status_code == 503 and says in reply.json()["error"]["message"]
    streamed = client.post("/v1/completions", json={"prompt": "Hello", "stream": True})
    assert says in streamed.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("place", ["step", "tell", "an action"])
def test_whoever_asks_once_nothing_draws_is_told(
    place: str, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: Any) -> Any:
        raise SystemExit  # which a thread ends by without a word

    app = make_app(served.llm, model="talker")
    client = TestClient(app)
    refused(client, "has not been started")
    with monkeypatch.context() as patch, client:
        if place == "step":
            patch.setattr(served.llm.batch.engine, "step", ended)
        else:
            name = "_tell" if place == "tell" else "_add"
            patch.setattr(app.state.server.worker, name, ended)
        reply = client.post("/v1/completions", json={"prompt": ["Hello", "You"], "n": 2})
        assert reply.status_code == 503
        assert "what draws answers has ended" in reply.json()["error"]["message"]
        assert client.get("/health").status_code == 503
        refused(client, "what draws answers has ended")
        assert served.llm.batch.answers == 0
    refused(client, "what draws answers has ended")


def test_a_stop_tells_those_who_wait(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    step, going = served.llm.batch.engine.step, threading.Event()

    def slow(rows: Any) -> Any:
        going.set()
        time.sleep(0.05)
        return step(rows)

    monkeypatch.setattr(served.llm.batch.engine, "step", slow)
    app = make_app(served.llm, model="talker")
    body = {"prompt": "Hello", "max_tokens": 180, "ignore_eos": True}
    replies: list[Any] = []
    with TestClient(app) as client:
        asker = threading.Thread(
            target=lambda: replies.append(client.post("/v1/completions", json=body))
        )
        asker.start()
        assert going.wait(60)
        app.state.server.worker.stop()
        asker.join(60)
        assert replies and replies[0].status_code == 503
        assert "the server is being stopped" in replies[0].text
        refused(client, "the server is being stopped")
    assert served.llm.batch.answers == 0


def test_texts_of_a_client_that_left_are_not_embedded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def slow(ids: Any, adapter: str | None) -> Any:
        calls.append(1)
        time.sleep(0.02)
        return np.zeros((1, 32), np.float32)

    monkeypatch.setattr(served.llm, "embed", slow)
    raw = served.send("/v1/embeddings", {"input": ["Hello"] * 500})
    until(lambda: calls)
    raw.close()
    until(lambda: served.active == 0)
    known = len(calls)
    assert known < 400
    time.sleep(0.1)
    assert len(calls) <= known + 1, "but for one that was being made"

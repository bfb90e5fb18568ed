"""The server of encoders, judged by the client of OpenAI and by the encoders themselves."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
pytest.importorskip("starlette", reason="serving needs the package starlette")
pytest.importorskip("openai", reason="the judge is the package openai")

import openai
from starlette.testclient import TestClient

from rlx.llm.server import make_encoder_app
from rlx.models import Embed, Rerank
from rlx.tools.cli import main
from support.tiny_encoders import with_tokenizer, write_encoder

SHAPES = json.loads(
    (Path(__file__).parents[1] / "models/fixtures/encoders.json").read_text(encoding="utf-8")
)
TEXTS = ["b c d", "a", "p o n", "b " * 50]


def written(name: str, folder: Path) -> Path:
    return with_tokenizer(write_encoder(folder, name, SHAPES[name]["shapes"]))


@pytest.fixture(scope="module")
def embed(tmp_path_factory: pytest.TempPathFactory) -> Embed:
    return Embed.from_dir(written("bert", tmp_path_factory.mktemp("bert")), threads=1)


@pytest.fixture(scope="module")
def rerank(tmp_path_factory: pytest.TempPathFactory) -> Rerank:
    return Rerank.from_dir(written("bert-scores", tmp_path_factory.mktemp("scores")), threads=1)


def serving(encoder: Embed | Rerank) -> TestClient:
    return TestClient(make_encoder_app(encoder, model="small", max_body=60_000))


@pytest.fixture(scope="module")
def client(embed: Embed) -> Iterator[TestClient]:
    with serving(embed) as made:
        yield made


def test_embeddings(embed: Embed, client: TestClient) -> None:
    assert client.post("/v1/rerank", json={"query": "a", "documents": ["a"]}).status_code == 404
    judge: Any = openai.OpenAI(base_url="http://testserver/v1", api_key="none", http_client=client)
    assert [m.id for m in judge.models.list()] == ["small"]
    wanted = embed.encode(TEXTS)
    for given in ({}, {"encoding_format": "float"}):
        found: Any = judge.embeddings.create(model="small", input=TEXTS, **given)
        np.testing.assert_array_equal(
            np.array([row.embedding for row in found.data], np.float32), wanted
        )
    assert found.usage.prompt_tokens == embed.count_tokens(TEXTS)
    many = judge.embeddings.create(model="small", input=TEXTS * 20)
    np.testing.assert_array_equal(
        np.array([r.embedding for r in many.data[76:]], np.float32), wanted
    )
    row = np.array([[1, 5, 6, 2]], np.int64)
    ids = judge.embeddings.create(model="small", input=row[0].tolist())
    one = embed.encode_ids(row, np.ones_like(row))[0]
    np.testing.assert_array_equal(np.array(ids.data[0].embedding, np.float32), one)
    assert ids.usage.prompt_tokens == 4
    for wrong, says in (
        ([1] * 65, "a text has 64 tokens at most, found 65"),
        ([1, 40], "tokens are from 0 to 39, found 1 to 40"),
    ):
        with pytest.raises(openai.BadRequestError, match=says):
            judge.embeddings.create(model="small", input=wrong)


def test_rankings(rerank: Rerank) -> None:
    client = serving(rerank)
    assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 404
    asked: dict[str, Any] = {"model": "small", "query": "c d", "documents": TEXTS}
    whole = client.post("/v1/rerank", json=asked).json()
    best = rerank.rank("c d", TEXTS)
    assert [(r["index"], r["relevance_score"]) for r in whole["results"]] == best
    assert [r["document"]["text"] for r in whole["results"]] == [TEXTS[n] for n, _ in best]
    assert whole["model"] == "small"
    assert whole["usage"]["total_tokens"] == rerank.count_tokens("c d", TEXTS)
    objects = [{"text": t} for t in TEXTS]
    two = client.post(
        "/v1/rerank",
        json={**asked, "documents": objects, "top_n": 2, "return_documents": False},
    ).json()["results"]
    assert two == [{"index": n, "relevance_score": score} for n, score in best[:2]]
    for change, status, says in (
        ({"query": None}, 400, "query is a string"),
        ({"documents": "a"}, 400, "documents is a list of strings, or of objects with a text"),
        ({"documents": []}, 400, "documents is a list of strings"),
        ({"documents": [{"title": "a"}]}, 400, "documents is a list of strings"),
        ({"documents": ["a"] * 2049}, 400, "a request has 2048 documents at most"),
        ({"top_n": 0}, 400, "top_n is from 1"),
        ({"model": "other"}, 404, "the model 'other' is not served here; there is 'small'"),
        ({"rank_fields": ["a"]}, 400, "no field is called 'rank_fields'"),
        ({"\ud800": 1}, 400, "no field is called '\\ud800'"),  # in no UTF-8
    ):
        body, kind = json.dumps({**asked, **change}), {"content-type": "application/json"}
        reply = client.post("/v1/rerank", content=body, headers=kind)
        assert reply.status_code == status and says in reply.json()["error"]["message"]


@contextmanager
def watched(encoder: Rerank, monkeypatch: pytest.MonkeyPatch, begun: Callable[[], None]) -> Any:
    """How many documents each part has that is ranked; ``begun`` is called when the first is."""
    parts: list[int] = []
    logits = encoder._logits

    def counted(query: str, texts: Any, *rest: Any, **options: Any) -> Any:
        parts.append(len(texts))
        if len(parts) == 1:
            begun()
        return logits(query, texts, *rest, **options)

    with monkeypatch.context() as m:
        m.setattr(encoder, "_logits", counted)
        yield parts


def test_rankings_give_way_to_each_other(rerank: Rerank, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_encoder_app(rerank, model="small")
    many = [" ".join("bcdefgh"[n % 7 :]) + " a" * (n % 5) for n in range(200)]
    best = rerank.rank("c d", many, 50)

    def begun() -> None:
        end = time.monotonic() + 60
        while app.state.server.active < 2 and time.monotonic() < end:
            time.sleep(0.001)

    asked = ({"documents": many, "top_n": 50}, {"documents": TEXTS})
    with (
        watched(rerank, monkeypatch, begun) as parts,
        TestClient(app) as two,
        ThreadPoolExecutor(2) as pool,
    ):
        long, short = pool.map(lambda a: two.post("/v1/rerank", json={"query": "c d", **a}), asked)
    assert sorted(parts) == [4, 8, *[32] * 6] and parts.index(4) <= 2, "one waited for the other"
    for reply, wanted in ((long, best), (short, rerank.rank("c d", TEXTS))):
        found = [(r["index"], r["relevance_score"]) for r in reply.json()["results"]]
        assert found == wanted
    assert long.json()["usage"]["total_tokens"] == rerank.count_tokens("c d", many)


def test_a_ranking_ends_when_its_client_has_gone(
    rerank: Rerank, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_encoder_app(rerank, model="small")
    body = json.dumps({"query": "c d", "documents": ["b"] * 200}).encode()
    scope = {
        "type": "http", "method": "POST", "path": "/v1/rerank", "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }  # fmt: skip
    answered, sent = threading.Event(), list[Any]()

    async def ask() -> None:
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        messages = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            answered.set()

        def begun() -> None:
            loop.call_soon_threadsafe(gone.set)
            answered.wait(60)

        with watched(rerank, monkeypatch, begun) as parts:
            await app(scope, receive, send)
            await asyncio.to_thread(app.state.server.thread.shutdown)
        assert parts == [32], "parts were ranked that no one waits for"

    asyncio.run(ask())
    assert sent[0]["status"] == 499 and app.state.server.metrics.cancelled == 1


def test_health_and_metrics(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    text = client.get("/metrics").text
    assert 'rlx_requests_total{path="/health",status="200"}' in text
    assert "rlx_pages" not in text, "of language models alone"


@pytest.mark.parametrize(
    ("name", "route"), [("bert", "/v1/embeddings"), ("bert-scores", "/v1/rerank")]
)
def test_the_command_tells_encoders_apart(
    name: str,
    route: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = written(name, tmp_path / name)
    uvicorn = pytest.importorskip("uvicorn", reason="serving needs the package uvicorn")
    apps: list[Any] = []
    monkeypatch.setattr(uvicorn, "run", lambda app, **_: apps.append(app))
    assert main(["serve", str(folder), "--threads", "1"]) == 0
    assert route in [r.path for r in apps[0].routes]
    for words, says in (
        (["--ranks", "2"], "is an encoder, which ranks do not share; give --replicas"),
        (["--cache", "f16"], "is no language model, and --cache is of these alone"),
        (["--tokens", "99"], "is no language model, and --tokens is of these alone"),
        (["--sequences", "64"], "is no language model, and --sequences is of these alone"),
    ):
        assert main(["serve", str(folder), *words]) == 1
        assert says in capsys.readouterr().err

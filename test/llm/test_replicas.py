"""``rlx serve --replicas``: a small random model in two processes behind one server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
pytest.importorskip("uvicorn", reason="serving needs the package uvicorn")
pytest.importorskip("starlette", reason="serving needs the package starlette")
pytest.importorskip("openai", reason="the judge is the package openai")

import openai
from starlette.testclient import TestClient

import rlx
from rlx.llm.server import replicas
from rlx.llm.server.access import Access
from rlx.llm.server.exchange import get
from rlx.llm.server.front import Front, merged
from support.tiny_llm import write_talker

KEY = "a key"


class Served:
    """The server, and what it writes."""

    def __init__(self, folder: Path) -> None:
        (folder / "key").write_text(f"{KEY}\n", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rlx", "serve", str(folder), "--port", "0", "--context", "4096",
             "--sequences", "4", "--threads", "1", "--name", "talker", "--replicas", "2",
             "--api-key-file", str(folder / "key"), "--grace", "1"],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        until(lambda: self.address() is not None or self.process.poll() is not None)
        address = self.address()
        assert address is not None, self.lines
        self.client = openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def address(self) -> str | None:
        found = re.search(r"^INFO: .*running on (http\S+)", "".join(self.lines), re.MULTILINE)
        return None if found is None else found[1]

    def get(self, path: str) -> str:
        return self.client.with_options(timeout=60)._client.get(
            str(self.client.base_url).removesuffix("/v1/") + path,
            headers={"Authorization": f"Bearer {KEY}"},
        ).text  # fmt: skip

    def replicas(self) -> list[dict[str, Any]]:
        return json.loads(self.get("/health"))["replicas"]

    def metric(self, name: str) -> list[float]:
        """Of each replica that serves."""
        found = re.findall(rf'^{name}{{replica="(\d)"}} (\S+)$', self.get("/metrics"), re.MULTILINE)
        return [float(value) for _, value in sorted(found)]

    def stream(self, tokens: int = 180) -> Any:
        return self.client.completions.create(
            model="talker", prompt="Hello", max_tokens=tokens, stream=True, temperature=0,
            extra_body={"ignore_eos": True},
        )  # fmt: skip


def until(done: Any) -> None:
    for _ in range(3000):
        if done():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to that in a minute")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talker(tmp_path_factory.mktemp("talker"), num_hidden_layers=1,
                        max_position_embeddings=4096)  # fmt: skip


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    found = Served(folder)
    yield found
    pids = [r["pid"] for r in found.replicas()]
    found.process.send_signal(signal.SIGTERM)
    status = found.process.wait(60)
    found.reader.join(10)
    assert status in (0, -signal.SIGTERM, 128 + signal.SIGTERM), found.lines
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_each_request_goes_to_the_one_with_the_fewest(served: Served, folder: Path) -> None:
    options: dict[str, Any] = {"max_new_tokens": 180, "temperature": 0, "ignore_eos": True}
    own = rlx.LLM(folder, threads=1, context=4096).generate("Hello", **options)[0]
    streams = [served.stream() for _ in range(2)]
    parts = ["".join(c.text for chunk in s for c in chunk.choices) for s in streams]
    assert parts == [own.text, own.text]
    assert served.metric("rlx_replica_served_total") == [1.0, 1.0]
    assert served.metric("rlx_generated_tokens_total") == [180.0, 180.0]
    text = served.get("/metrics")
    assert text.count("# TYPE rlx_requests_total counter") == 1
    assert 'rlx_first_token_seconds_bucket{replica="1",le="0.005"}' in text


def test_what_replicas_refuse_comes_back(served: Served) -> None:
    assert [m.id for m in served.client.models.list()] == ["talker"]
    with pytest.raises(openai.BadRequestError, match="have no room in a context of 4096"):
        served.client.completions.create(model="talker", prompt="Hello", max_tokens=9999)
    with pytest.raises(openai.AuthenticationError, match="API key is missing or wrong"):
        served.client.with_options(api_key="x").models.list()
    with pytest.raises(openai.APIStatusError, match="a body has 1048576 bytes at most"):
        served.client.completions.create(model="talker", prompt="x" * (1 << 20 | 1))


def test_a_client_that_goes_away_ends_its_answer_alone(served: Served) -> None:
    gone, other = served.stream(4000), served.stream()
    next(iter(gone))
    gone.close()
    until(lambda: sum(served.metric("rlx_cancelled_total")) == 1)
    assert list(other)[-1].choices[0].finish_reason == "length"
    until(lambda: served.metric("rlx_replica_requests") == [0.0, 0.0])
    assert served.metric("rlx_sequences_running") == [0.0, 0.0]


def test_one_that_is_killed_is_named_and_started_again(served: Served) -> None:
    before = served.replicas()
    streams = [iter(served.stream(1000)) for _ in range(2)]
    for stream in streams:
        next(stream)
    os.kill(before[1]["pid"], signal.SIGKILL)
    ended: list[str] = []
    for stream in streams:
        try:
            assert list(stream)[-1].choices[0].finish_reason == "length"
        except openai.APIError as e:
            ended.append(e.message)
    assert ended == ["replica 1 failed: killed by signal 9 (SIGKILL)"]
    for _ in range(2):  # the other serves meanwhile
        assert served.client.completions.create(model="talker", prompt="Hi", max_tokens=2).choices
    until(lambda: [r["status"] for r in served.replicas()] == ["ok", "ok"])
    after = served.replicas()
    assert [r["restarts"] for r in after] == [0, 1]
    assert before[0]["pid"] == after[0]["pid"] and before[1]["pid"] != after[1]["pid"]
    assert "replica 1 of 2 killed by signal 9 (SIGKILL); it is started again\n" in "".join(
        served.lines
    )


def test_one_that_does_not_start_ends_the_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from rlx.tools.cli import main

    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert main(["serve", str(tmp_path / "model.gguf"), "--replicas", "2", "--port", "0"]) == 1
    assert re.search(r"serve: replica \d of 2 ended with status 1", capfd.readouterr().err)


FAKE = """
import socketserver, sys
class Once(socketserver.StreamRequestHandler):
    count = 0
    def handle(self):
        while self.rfile.readline().strip():
            pass
        Once.count += 1
        status = 200 if Once.count < 3 else 503
        self.wfile.write(b"HTTP/1.1 %d OK\\r\\nContent-Length: 0\\r\\n\\r\\n" % status)
socketserver.UnixStreamServer(sys.argv[1], Once).serve_forever()
"""
"""A replica that soon says that it does not serve."""


def test_one_that_says_it_does_not_serve_is_killed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replicas, "WATCH", 0.05)

    async def run() -> None:
        async with replicas.Replicas(lambda path: ["-c", FAKE, path], 1) as made:
            (one,) = made.replicas
            pid = one.pid
            while not (one.restarts and one.serving):
                await asyncio.sleep(0.02)
            assert one.pid != pid

    asyncio.run(asyncio.wait_for(run(), 60))
    said = capfd.readouterr().err
    assert "replica 0 does not serve; it is killed\n" in said
    assert "replica 0 of 1 killed by signal 9 (SIGKILL); it is started again\n" in said


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_reply_that_is_broken_off(reply: bytes, tmp_path: Path) -> None:
    path = str(tmp_path / "s")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(reply)
        writer.close()

    async def run() -> None:
        async with await asyncio.start_unix_server(answer, path):
            await get(path, "/health")

    with pytest.raises(EOFError, match="broke off its reply"):
        asyncio.run(run())


def test_without_a_replica_that_serves() -> None:
    made = replicas.Replicas(lambda path: [], 2)
    os.rmdir(made.folder)
    client = TestClient(Front(made, Access(None, None)))
    assert client.get("/health").status_code == 503
    assert client.get("/health").json()["status"] == "0 of 2 replicas serve"
    for serving in (False, True):  # it has ended just now
        made.replicas[1].serving = serving
        reply = client.post("/v1/completions", json={"prompt": "Hello"})
        assert reply.status_code == 503
        assert "no replica of the server serves now" in reply.json()["error"]["message"]


def test_metrics_keep_families_together() -> None:
    a = "# HELP n What it is.\n# TYPE n gauge\nn 1\n"
    b = '# HELP n What it is.\n# TYPE n gauge\nn{le="2"} 3\n'
    wanted = '# HELP n What it is.\n# TYPE n gauge\nn{replica="0"} 1\nn{replica="1",le="2"} 3\n'
    assert merged([], {"0": a, "1": b}) == wanted

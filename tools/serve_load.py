"""Put load on ``rlx serve``'s server over loopback, and check what it promises.

    python tools/serve_load.py [--requests 10000] [--clients 64] [--seed 0] [--speculate lookup]
                               [--model MODEL]

The model is a small random one, or a file or folder. Clients ask one request after the other: most
read their stream to its end, some close it early, some read slowly. Then no answer and no page may
be in use, nor more threads, files and memory than after a tenth of the requests, and whole answers
are the texts that the model draws for their prompts alone. It prints the time between two tokens
of an answer, as the server's loop gets them, and how much sooner the first token of a prompt comes
whose first 1024 tokens are known. Exit code 1 says that something did not hold; times are only
printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

import uvicorn  # noqa: E402 -- found by the path above

import rlx  # noqa: E402
from rlx.llm.server import make_app  # noqa: E402
from support.tiny_llm import write_talker  # noqa: E402 # pyright: ignore[reportMissingImports]

CONTEXT, KNOWN = 1280, 1024
GROWTH = 32
"""MiB by which the process may grow while the last nine tenths of the requests are served."""
COMPARED = 200
"""Whole answers that are drawn alone, too."""


@dataclass
class Seen:
    """What the clients saw."""

    whole: list[tuple[list[int], int, str]] = field(default_factory=list)
    """Prompts, the tokens asked for, and the texts."""
    closed: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


async def ask(port: int, body: dict[str, Any]) -> tuple[Any, Any]:
    """Send a request; the connection, whose head has been read, or an AssertionError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps({"model": "talker", "stream": True, "logprobs": 0, **body}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + data)
    await writer.drain()
    status = (await reader.readuntil(b"\r\n\r\n")).split()[1]
    if status != b"200":
        writer.close()
        raise AssertionError(status.decode())
    return reader, writer


async def read(reader: Any, most: int, pause: float) -> tuple[int, str, bool]:
    """Read a stream up to so many tokens; how many came, their text, and whether it ended."""
    count, text = 0, ""
    async for line in reader:
        if line.strip() == b"data: [DONE]":
            return count, text, True
        if line.startswith(b"data: "):
            for choice in json.loads(line[6:])["choices"]:
                count += len((choice["logprobs"] or {}).get("tokens", ()))
                text += choice["text"]
            if count >= most:
                break
            await asyncio.sleep(pause)
    return count, text, False


async def client(port: int, numbers: list[int], seed: int, seen: Seen) -> None:
    """Requests of some numbers, one after the other."""
    for number in numbers:
        rng = random.Random(f"{seed} {number}")
        shared = rng.choice([0, 0, 40, 100])
        prompt = [*range(shared), *(rng.randrange(256) for _ in range(rng.randint(1, 60)))]
        length = rng.randint(2, 24)
        kind = rng.choices(("whole", "closes", "slow"), (8, 1, 1))[0]
        body = {"prompt": prompt, "max_tokens": length, "temperature": 0, "ignore_eos": True}
        try:
            reader, writer = await ask(port, body)
        except AssertionError as e:
            seen.refused += 1
            if str(e) not in ("429", "503"):
                seen.wrong.append(f"request {number}: status {e}")
            continue
        most = length // 2 if kind == "closes" else length + 1
        count, text, ended = await read(reader, most, 0.02 if kind == "slow" else 0)
        writer.close()
        if kind == "closes":
            seen.closed += 1
        elif not ended or count != length:
            seen.wrong.append(f"request {number}: {count} tokens of {length}, ended: {ended}")
        else:
            seen.whole.append((prompt, length, text))


def kept(times: Any) -> list[float]:
    """Each of the times that a server counts from now on."""
    found: list[float] = []
    count = times.add

    def add(seconds: float) -> None:
        found.append(seconds)
        count(seconds)

    times.add = add
    return found


async def first_token(port: int, prompt: list[int]) -> tuple[float, float]:
    """Seconds to the first token of a prompt, and of processor time, the client's included."""
    begin, used = time.perf_counter(), time.process_time()
    reader, writer = await ask(port, {"prompt": prompt, "max_tokens": 1, "temperature": 0})
    await reader.readuntil(b"data: ")
    writer.close()
    return time.perf_counter() - begin, time.process_time() - used


def in_use() -> tuple[int, int, int]:
    """The threads of the process, its open files (sockets are such), and its memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    files = len(os.listdir("/proc/self/fd"))
    return threading.active_count(), files, pages * os.sysconf("SC_PAGESIZE") >> 20


async def load(port: int, requests: int, clients: int, seed: int, seen: Seen) -> Any:
    """All clients side by side, then prompts that are not known and such that are: the seconds to
    the first token of each, and of processor time, f64 ``[pairs, 2, 2]``."""
    early, held = requests // 10, []
    for part in (range(early), range(early, requests)):
        shares = [list(part[n::clients]) for n in range(clients)]
        await asyncio.gather(*(client(port, numbers, seed, seen) for numbers in shares))
        await asyncio.sleep(1)  # closed connections are seen by both sides
        held.append(in_use())
    for name, before, after in zip(("threads", "files", "MiB"), *held, strict=True):
        if after > before + (GROWTH if name == "MiB" else 0):
            seen.wrong.append(f"{after} {name} in use, after a tenth of the requests {before}")
    pairs: list[Any] = []
    for n in range(15):
        begin = np.random.default_rng([seed, n]).integers(0, 256, KNOWN).tolist()
        fresh = await first_token(port, [*begin, 1])
        known = [await first_token(port, [*begin, k]) for k in range(2, 6)]
        pairs.append([fresh, np.median(known, 0)])
    return np.asarray(pairs)


def main() -> int:
    """Run it, and print what was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="a GGUF file or a folder, instead of the small model")
    parser.add_argument("--speculate", choices=["lookup"], help="draft tokens")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        llm = rlx.LLM(
            given.model or write_talker(Path(folder), max_position_embeddings=CONTEXT),
            context=CONTEXT,
            tokens=4 * CONTEXT, sequences=32, speculate=given.speculate,
        )  # fmt: skip
        llm.warm_up()
        app = make_app(llm, model="talker", max_requests=2 * given.clients, hosts=["127.0.0.1"])
        between = kept(app.state.server.metrics.between)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        seen = Seen()
        times = asyncio.run(load(port, given.requests, given.clients, given.seed, seen))
        schedule, until = llm.batch.schedule, time.monotonic() + 10
        while llm.batch.answers and time.monotonic() < until:
            time.sleep(0.05)
        used = schedule.pool.used_count - schedule.prefix.idle
        server.should_exit = True
        thread.join()
        if llm.batch.answers or used:
            seen.wrong.append(f"{llm.batch.answers} answers and {used} pages are left in use")
        for prompt, length, text in seen.whole[:COMPARED]:
            alone = llm.generate(
                prompt, max_new_tokens=length, temperature=0.0, ignore_eos=True, draft_tokens=0
            )[0]  # fmt: skip
            if alone.text != text:
                seen.wrong.append(f"{prompt}: {text!r}, and alone {alone.text!r}")
    print(f"{len(seen.whole)} whole, {seen.closed} closed early, {seen.refused} refused")
    if between:
        middle, most = np.percentile(between, (50, 99)) * 1e3
        print(f"between two tokens: {middle:.1f} ms (median), 99 % in up to {most:.1f} ms")
    for name, (fresh, known) in zip(("time", "processor time"), np.median(times, 0).T, strict=True):
        print(
            f"first token after {KNOWN} known tokens: {1e3 * known:.1f} ms of {name}, after others"
            f" {1e3 * fresh:.1f} ms: {fresh / known:.1f} times"
        )
    print(f"preemptions {schedule.preemptions}, prefix hits {schedule.prefix.hits}")
    print(*seen.wrong[:20], sep="\n")
    return 1 if seen.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

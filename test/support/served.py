"""The server of a language model in a thread, and the client of OpenAI for it."""

from __future__ import annotations

import json
import socket
import threading
import time
from http.client import HTTPConnection
from typing import Any

import openai
import uvicorn

import rlx
from rlx.llm.server import make_app

__all__ = ["KEY", "Served", "until"]

KEY = "a key"


class Served:
    """A server in a thread."""

    def __init__(self, llm: rlx.LLM, **options: Any) -> None:
        self.llm = llm
        self.app = make_app(llm, model="talker", api_key=KEY, hosts=["127.0.0.1"], **options)
        config = uvicorn.Config(self.app, port=0, log_level="error", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        until(lambda: self.server.started)
        self.port: int = self.server.servers[0].sockets[0].getsockname()[1]
        self.client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key=KEY, max_retries=0
        )

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()

    def ask(
        self, path: str, body: Any = None, method: str = "POST", **headers: str
    ) -> tuple[int, Any]:
        """A request by hand: the status, and the JSON or text that came."""
        given = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **headers}
        connection = HTTPConnection("127.0.0.1", self.port)
        sent = body if isinstance(body, bytes | None) else json.dumps(body)
        connection.request(method, path, sent, given)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, json.loads(text) if text.startswith("{") else text

    def send(self, path: str, body: Any) -> socket.socket:
        """A request whose answer is not read, and whose connection the caller closes."""
        sent = json.dumps(body)
        connection = socket.create_connection(("127.0.0.1", self.port))
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
        )
        connection.sendall(f"{head}Content-Length: {len(sent)}\r\n\r\n{sent}".encode())
        return connection

    @property
    def pages(self) -> int:
        """Pages that answers hold."""
        schedule = self.llm.batch.schedule
        return schedule.pool.used_count - schedule.prefix.idle

    @property
    def active(self) -> int:
        """Requests that are being served."""
        return self.app.state.server.active


def until(done: Any) -> None:
    for _ in range(6000):
        if done():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that in a minute")

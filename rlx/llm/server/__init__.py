"""A language model over HTTP, by the API of OpenAI.

worker.py    the thread that draws answers, and what it tells those who wait for them
fields.py    the fields of a request, checked
requests.py  bodies of requests to prompts and options
replies.py   answers to bodies of replies, whole or in chunks
metrics.py   counters and histograms as Prometheus reads them
app.py       routes, keys, limits; streams, and clients that go away
"""

from __future__ import annotations

from rlx.llm.server.app import make_app

__all__ = ["make_app"]

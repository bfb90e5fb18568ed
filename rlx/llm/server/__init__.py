"""A language model or an encoder over HTTP, by the API of OpenAI.

service.py   what all servers have: errors, limits, and the routes that say what is served
encoders.py  embeddings and rankings by encoders
worker.py    the thread that draws answers, and what it tells those who wait for them
fields.py    the fields of a request, checked
requests.py  bodies of requests to prompts and options
replies.py   answers to bodies of replies, whole or in chunks
metrics.py   counters and histograms as Prometheus reads them
access.py    who may ask
app.py       the routes of a language model; streams, and clients that go away
replicas.py  processes with a server each, watched and started again
front.py     one server before them
exchange.py  its requests to them
"""

from __future__ import annotations

from rlx.llm.server.app import make_app
from rlx.llm.server.encoders import make_encoder_app

__all__ = ["make_app", "make_encoder_app"]

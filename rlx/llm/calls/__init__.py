"""Calls of tools: how models write them, reading them as they come, and asking for them."""

from __future__ import annotations

from rlx.llm.calls.messages import calls_fit, with_arguments
from rlx.llm.calls.reader import CallReader
from rlx.llm.calls.spelling import Call, Spelling, spelling_of
from rlx.llm.calls.tools import Tools

__all__ = ["Call", "CallReader", "Spelling", "Tools", "calls_fit", "spelling_of", "with_arguments"]

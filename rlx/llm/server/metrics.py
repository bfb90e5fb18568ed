"""Counters and histograms as Prometheus reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx.llm.batching.batch import Batch

__all__ = ["Metrics"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets of times."""


class _Times:
    def __init__(self) -> None:
        self.counts, self.total = [0] * (len(SECONDS) + 1), 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def lines(self, name: str, text: str) -> Iterator[str]:
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} histogram"
        below = 0
        for bound, count in zip((*map(str, SECONDS), "+Inf"), self.counts, strict=True):
            below += count
            yield f'{name}_bucket{{le="{bound}"}} {below}'
        yield f"{name}_sum {self.total:.6f}"
        yield f"{name}_count {below}"


class Metrics:
    """What a server has done."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.prompt_tokens = self.cached_tokens = self.tokens = self.cancelled = 0
        self.first, self.between = _Times(), _Times()

    def text(self, batch: Batch | None) -> str:
        """All of it, and what a batch is doing now, in Prometheus's text format; without a batch
        what encoders do."""
        counted = {
            "rlx_prompt_tokens_total": ("Tokens of prompts.", self.prompt_tokens),
            "rlx_cancelled_total": ("Requests whose client went away.", self.cancelled),
            **({} if batch is None else self._of(batch)),
        }
        lines = [
            "# HELP rlx_requests_total Requests by path and status.",
            "# TYPE rlx_requests_total counter",
        ]
        lines += [
            f'rlx_requests_total{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(self.requests.items())
        ]
        for name, (text, value) in counted.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value}"]
        if batch is not None:
            lines += self.first.lines("rlx_first_token_seconds", "From request to first token.")
            lines += self.between.lines("rlx_between_tokens_seconds", "Between an answer's tokens.")
        return "\n".join(lines) + "\n"

    def _of(self, batch: Batch) -> dict[str, tuple[str, int]]:
        """What there is of answers."""
        schedule = batch.schedule
        return {
            "rlx_cached_tokens_total": ("Of them known before.", self.cached_tokens),
            "rlx_generated_tokens_total": ("Tokens that were drawn.", self.tokens),
            "rlx_sequences_running": ("Answers that are being drawn.", len(schedule.running)),
            "rlx_sequences_waiting": ("Answers that wait.", len(schedule.waiting)),
            "rlx_pages_used": ("Pages of keys and values in use.", schedule.pool.used_count),
            "rlx_pages_known": ("Of them kept for prompts to come.", schedule.prefix.idle),
            "rlx_pages": ("Pages of keys and values.", schedule.pool.capacity),
            "rlx_steps_total": ("Steps of the model.", batch.steps),
            "rlx_rows_total": ("Tokens that steps have read.", batch.rows),
            "rlx_preemptions_total": ("Answers that gave way.", schedule.preemptions),
            "rlx_drafted_tokens_total": ("Tokens that speculation tried.", batch.drafted),
            "rlx_accepted_tokens_total": ("Of them drawn.", batch.accepted),
        }

"""The reports of a run, for stderr: seconds by pass, and how often each rule applied."""

from __future__ import annotations

from collections import Counter

__all__ = ["statistics_report", "timing_report"]

RULE = "===" + "-" * 73 + "==="


def timing_report(seconds: dict[str, float], total: float) -> str:
    """Wall time by pass, and what is left of ``total``, as mlir-opt prints it."""
    rows = [*seconds.items(), ("Rest", total - sum(seconds.values())), ("Total", total)]
    lines = [f"  {s:9.4f} ({100 * s / total if total else 0:5.1f}%)  {name}" for name, s in rows]
    return "\n".join(
        [
            *_head("Execution time report"),
            f"  Total Execution Time: {total:.4f} seconds",
            "",
            "  ----Wall Time----  ----Name----",
            *lines,
        ]
    )


def statistics_report(hits: dict[str, Counter[str]]) -> str:
    """How often each rule of each pass applied; a pass without hits is there too."""
    lines: list[str] = []
    for name, rules in hits.items():
        lines.append(name)
        lines += [f"  (S) {count:6d} {rule}" for rule, count in rules.items()]
        lines += [] if rules else ["  nothing applied"]
    return "\n".join([*_head("Pass statistics report"), *lines])


def _head(title: str) -> list[str]:
    return [RULE, f"... {title} ...".center(len(RULE)).rstrip(), RULE]

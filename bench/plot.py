"""The ratios of a run as a picture: a row a family, a dot a case and peer."""

from __future__ import annotations

from pathlib import Path

from bench.measure import OURS
from bench.report import Results, comparison


def draw(results: Results, file: Path) -> None:
    """Write the picture, an SVG by its name; only times are drawn."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "rlx"
    import matplotlib.pyplot as plt

    timed = {k: r for k, r in results.cases().items() if comparison(r) and r[OURS].unit == "s"}
    families = list(dict.fromkeys((family, threads) for family, _, threads in timed))
    peers = list(dict.fromkeys(name for rows in timed.values() for name in rows if name != OURS))
    figure, axes = plt.subplots(figsize=(9, 0.45 * len(families) + 1.6))
    for color, peer in enumerate(peers):
        points = [
            (rows[peer].least / rows[OURS].least, families.index((family, threads)))
            for (family, _, threads), rows in timed.items()
            if peer in rows
        ]
        x, y = zip(*points, strict=True)
        # Side by side within a row, so that the peers can be told apart.
        shift = 0.6 * (color / max(1, len(peers) - 1) - 0.5)
        axes.scatter(x, [v + shift for v in y], s=14, alpha=0.7, label=peer, color=f"C{color}")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(families)), [f"{name}, {threads} T" for name, threads in families])
    axes.invert_yaxis()
    axes.set_xlabel("time of the peer / time of RLX, each at its least: right of 1, RLX is faster")
    axes.legend(ncols=len(peers), fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.grid(axis="x", alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)

"""Shrinking a graph that fails to what makes it fail."""

from rlx.tools.reduce.search import Subject, reduce_graph

__all__ = ["Subject", "reduce_graph"]

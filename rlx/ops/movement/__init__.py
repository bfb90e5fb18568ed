"""Ops that move, join and make elements."""

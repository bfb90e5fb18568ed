"""Gathers, scatters, indexing and search."""

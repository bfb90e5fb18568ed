"""Ops on quantised numbers: decoding of blocks."""

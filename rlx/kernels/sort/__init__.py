"""Sorting networks, merges and scans along an axis."""

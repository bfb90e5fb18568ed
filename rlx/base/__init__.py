"""Foundations of all other packages: clocks, digests, frozen classes, symbolic dims, threads."""

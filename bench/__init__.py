"""Benchmarks: RLX and its peers timed in turn in one run, and ratios of medians."""

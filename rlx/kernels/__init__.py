"""Kernel families, a folder of each or of several that are alike; ``registry`` has a row of each.

A file ``gpu.py`` has the kernels of a family for blocks of threads that share memory. Blocks are as
large as the target allows, and share as much as it has; how many of their threads run in step is
never asked, but by matrix units. No loop ends at another place for another thread of the block:
PoCL compiles such a loop wrongly.
"""

"""The exit codes of rlx-opt."""

__all__ = ["DONE", "INTERNAL", "INTERRUPTED", "REFUSED", "USAGE"]

DONE = 0
REFUSED = 1
"""The input, or the IR that a pass was given."""
USAGE = 2
INTERNAL = 70
"""A defect of RLX."""
INTERRUPTED = 130

"""The command line: rlx and rlx-opt, and what they share."""

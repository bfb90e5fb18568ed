"""The verifier of every mir op refuses what its class says it refuses, with that message."""
# RUN: %python %inputs/ops.py refusals mir | %rlx-opt --split-input-file --verify-diagnostics

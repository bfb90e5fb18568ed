"""The verifier of every hir op refuses what its class says it refuses, with that message."""
# RUN: %python %inputs/ops.py refusals hir | %rlx-opt --split-input-file --verify-diagnostics

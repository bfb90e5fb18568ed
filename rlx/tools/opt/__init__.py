"""rlx-opt: reads HIR, MIR or LIR text, runs passes, prints a stage.

    rlx-opt model.mlir --hir-to-mir --simplify
    rlx-opt model.mlir --emit=lir --target=cpu:x86-64-v4
    rlx-opt bad.mlir --split-input-file --verify-diagnostics

It mirrors mlir-opt: IR goes to stdout and nothing else does; diagnostics, dumps and reports go to
stderr. Exit codes: 0 done, 1 the input was refused, 2 wrong usage, 70 an error inside RLX, 130
interrupted. docs/rlx-opt.md describes it.
"""

from rlx.tools.opt.command import main

__all__ = ["main"]

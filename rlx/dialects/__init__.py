"""The MLIR dialects: hir and mir, declared from the op classes, and lir."""

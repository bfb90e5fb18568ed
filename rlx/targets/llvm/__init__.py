"""Machine code by LLVM: the bridge from MLIR's LLVM IR text, the allow-list, the emitters."""

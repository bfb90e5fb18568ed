"""The kernel builder: registers, memory and loops, printed as MLIR."""

"""Kernels of convolutions, their weights' derivatives, and pooling."""

"""Kernels that run a program on each row."""

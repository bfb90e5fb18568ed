"""Kernels of loops whose values stay in registers."""

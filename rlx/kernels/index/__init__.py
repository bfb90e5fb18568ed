"""Kernels of gathers and scatters."""

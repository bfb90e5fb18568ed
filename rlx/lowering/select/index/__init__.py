"""Selection of the kernels of gathers and scatters."""

"""How what a family claims is lowered to the kernels of a GPU (``rlx.kernels.gpu``)."""

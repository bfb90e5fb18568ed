"""Selection of the kernels of convolutions and pooling."""

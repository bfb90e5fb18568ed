"""What the targets that run kernels on a GPU have in common, and the WebGPU target itself."""

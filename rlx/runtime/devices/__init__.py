"""Which devices there are, which one runs a graph, and graphs on GPUs."""

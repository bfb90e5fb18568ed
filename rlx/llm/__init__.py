"""Language models: a graph from a configuration, its weights, steps over paged keys and values."""

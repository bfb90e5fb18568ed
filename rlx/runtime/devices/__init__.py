"""Devices: discovery, the choice of one for a graph, and runs on GPUs."""

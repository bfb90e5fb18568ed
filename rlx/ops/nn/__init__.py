"""Blocks of neural networks: attention, normalisation, losses, recurrences of models."""

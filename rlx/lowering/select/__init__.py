"""Kernel selection: from fused regions to launches over views of memories."""

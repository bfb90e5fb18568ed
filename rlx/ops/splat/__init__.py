"""Gaussian splats."""

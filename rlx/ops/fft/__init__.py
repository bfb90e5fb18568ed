"""Fourier transforms and spectra."""

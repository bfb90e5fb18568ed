"""Targets: how kernels become code for a device."""

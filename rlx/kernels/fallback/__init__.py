"""Kernels of ops that no family claims: their own loop nests, and kernels of a user's own."""

"""Products of matrices, einsum and mixtures of experts."""

"""Control flow: its ops, what builds them, and their rules of differentiation and batching."""

"""Kernel families, a file or a few files each, and the builder that their text is written with."""

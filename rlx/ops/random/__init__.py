"""Random bits and distributions."""

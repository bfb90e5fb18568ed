"""Ops in which all ranks along an axis of a mesh take part."""

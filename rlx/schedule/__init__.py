"""Schedules, which a compile gives to a runtime: steps over numbered memories, and their bytes."""

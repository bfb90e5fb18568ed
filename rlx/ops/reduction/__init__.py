"""Reductions, scans, sorts and statistics along axes."""

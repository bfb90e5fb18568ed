"""A compile as one HTML page: every level side by side, each line linked to what it came from."""

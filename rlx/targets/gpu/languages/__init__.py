"""The shading languages, a table each."""

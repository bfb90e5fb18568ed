"""From a graph to an artifact, in one go or level by level."""

"""Selection of what no other family claims."""

"""What the ops of StableHLO become, a file for ops of a kind."""

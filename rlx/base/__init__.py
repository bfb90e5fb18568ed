"""What everything else stands on: clocks, digests, frozen classes, symbolic dims, threads."""

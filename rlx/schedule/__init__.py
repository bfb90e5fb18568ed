"""What a compile gives to a runtime: a schedule of steps over numbered memories, and its bytes."""

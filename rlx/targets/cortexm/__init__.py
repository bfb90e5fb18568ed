"""Networks of integers for Cortex-M: C without a heap, and the board that QEMU runs it on."""

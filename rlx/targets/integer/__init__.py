"""Networks of integers, which microcontrollers and FPGAs compute, and an exact model of them."""

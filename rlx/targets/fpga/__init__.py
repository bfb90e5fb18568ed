"""Integer networks as SystemVerilog for FPGAs."""

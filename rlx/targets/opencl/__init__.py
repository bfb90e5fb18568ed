"""Devices with OpenCL: OpenCL C, which the driver compiles to the machine's code."""

"""AMD GPUs: HSACO, an ELF file with the machine's code."""

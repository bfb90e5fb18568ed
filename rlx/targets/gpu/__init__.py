"""What all GPU targets share: kernels as text, and the program that a driver runs.

    language.py   what a shading language is: a table of templates, and no code
    languages/    one table a language
    printer.py    the one visitor that prints a kernel by a table
    emit.py       from kernel text in MLIR to the source of a driver
    program.py    what a compile gives a driver: kernels, buffers, launches
"""

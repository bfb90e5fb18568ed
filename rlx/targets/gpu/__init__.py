"""What the targets that run kernels on a GPU have in common, and the WebGPU target itself.

    language.py   what a shading language is: a table of templates, and no code
    languages/    one table a language
    printer.py    the one visitor that prints a kernel by a table
    emit.py       from kernel text in MLIR to the source that a driver compiles
    program.py    what a compile gives: kernels, buffers, and the steps that launch them
    work.py       what a driver is given, and what it gives back
    driver.py     what runs kernels on a device
"""

"""Benchmarks: RLX and its peers timed in turn in one run, with the ratios of their times.

The way of a run: ``__main__`` picks families of cases (``families/``); ``measure`` starts a process
(``worker``) for each library (``runtimes/``), has each prepare the same case, compares what they
compute with NumPy in f64, and times them in rounds; ``report`` makes tables of the rows, ``plot`` a
picture.
"""

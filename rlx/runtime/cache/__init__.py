"""The compile cache: artifacts by what their graphs are, and objects by what their kernels are.

A key is a list of named parts (``key``), the first of which is the structure of a graph
(``fingerprint``). ``store`` keeps bytes by key in a directory that many processes share, and knows
nothing of what they mean; ``artifacts`` and ``objects`` are the two levels that use it.
"""

"""Common parts of the front ends.

missing.py   all ops that are not there, at once
names.py     names of a model as names of ours
leaves.py    params that nothing reads
special.py   functions of statistics, as formulas
values.py    literals, and dims as values
images.py    samples at places that are data, and images of columns
check.py     a graph against the model that it was made from
"""

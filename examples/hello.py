"""The smallest graph: one product.

python examples/hello.py
"""

import rlx

g = rlx.Graph("hello")
x = g.input("x", [1, 4])
w = g.param("w", [4, 2])
g.set_outputs(x @ w)

f = rlx.Session("cpu").compile(g)
f.set_param("w", [1, 0, 0, 1, 1, 0, 0, 1])
print(f.run({"x": [[1, 2, 3, 4]]})[0])

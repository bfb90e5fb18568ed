"""The libraries that are compared, each in a module with ``prepare(case, threads, folder)``.

A module is imported in the process of its library alone; ``prepare`` returns the call to time.
"""

RUNTIMES = (
    "rlx", "torch", "inductor", "onnxruntime", "openvino", "jax", "iree", "numpy", "sklearn", "c",
)  # fmt: skip
"""By name; "c" and "sklearn" have no module, and run what cases of their own have."""

NEEDS = {
    "inductor": ("torch",),
    "onnxruntime": ("onnxruntime", "torch", "onnx"),
    "openvino": ("openvino", "torch"),
    "iree": ("iree.compiler", "iree.runtime", "jax"),
    "c": (),
}
"""The packages of a library, where they are others than the one of its name."""

EXPORTED = {"onnxruntime": "model.onnx", "openvino": "model.xml"}
"""The libraries that read a file which a process with torch writes."""

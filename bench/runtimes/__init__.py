"""The libraries that are compared, each in a module with ``prepare(case, threads, folder)``, or
``prepare_on(case, device)`` where a device is asked for.

A module is imported in the process of its library alone; ``prepare`` returns the call to time, and
``prepare_on`` a ``Started``.
"""

RUNTIMES = (
    "rlx", "torch", "inductor", "onnxruntime", "openvino", "jax", "iree", "numpy", "sklearn", "c",
    "ggml", "llama_cpp", "rlx_onnx",
)  # fmt: skip
"""By name; "c", "sklearn", "ggml" and "llama_cpp" run what cases of their own have, and "rlx_onnx"
whole models."""

ON_DEVICES = ("rlx", "torch", "inductor", "inductor_graphs", "cublas")
"""Those that have a ``prepare_on(case, device)`` for GPUs; others may take part from the CPU."""

NEEDS = {
    "inductor": ("torch",),
    "inductor_graphs": ("torch",),
    "cublas": ("torch",),
    "rlx_onnx": ("torch", "onnx", "onnxscript"),
    "onnxruntime": ("onnxruntime", "torch", "onnx"),
    "openvino": ("openvino", "torch"),
    "iree": ("iree.compiler", "iree.runtime", "jax"),
    "c": (),
    "ggml": ("llama_cpp",),
}
"""The packages of a library, where they are others than the one of its name."""

EXPORTED = {"rlx_onnx": "model.onnx", "onnxruntime": "model.onnx", "openvino": "model.xml"}
"""The libraries that read a file which a process with torch writes."""

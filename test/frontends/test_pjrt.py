"""The functions of PJRT, called as a C program calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rlx.frontends.pjrt import table
from support.pjrt import Api, PjrtError, enumeration, struct

API = Api(table())
CLIENT = API.call("Client_Create").client
DEVICE = ctypes.cast(API.call("Client_Devices", client=CLIENT).devices,
                     ctypes.POINTER(ctypes.c_void_p))[0]  # fmt: skip
TYPES = {"f": "F32", "i": "S32", "d": "F64", "?": "PRED", "F": "C64"}
INVALID, UNIMPLEMENTED, INTERNAL = 3, 12, 13

ADD = """
module @sums {
  func.func public @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32> {tf.aliasing_output = 0 : i32})
      -> (tensor<2x3xf32>, tensor<i32>) {
    %s = stablehlo.add %a, %b : tensor<2x3xf32>
    %k = stablehlo.constant dense<7> : tensor<i32>
    return %s, %k : tensor<2x3xf32>, tensor<i32>
  }
}
"""
X, Y = (np.arange(6, dtype=np.float32).reshape(2, 3) + n for n in (0, 10))


def dims(shape: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(shape), 1))(*shape)


def where(kept: Any) -> int:
    return ctypes.addressof(kept)


def text_at(data: bytes) -> int | None:
    """The address of bytes, which the caller keeps."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value


def buffer(a: np.ndarray[Any, Any], semantics: str = "kImmutableOnlyDuringCall") -> tuple[int, int]:
    """A buffer of an array, and the event of the array being free again."""
    kept, strides = dims(a.shape), dims(a.strides)
    made = API.call(
        "Client_BufferFromHostBuffer", client=CLIENT, data=a.ctypes.data,
        type=enumeration(f"PJRT_Buffer_Type_{TYPES[a.dtype.char]}"), dims=where(kept),
        num_dims=a.ndim, byte_strides=where(strides), num_byte_strides=a.ndim, device=DEVICE,
        host_buffer_semantics=enumeration(f"PJRT_HostBufferSemantics_{semantics}"),
    )  # fmt: skip
    return made.buffer, made.done_with_host_buffer


def array(b: int, like: np.ndarray[Any, Any], layout: Any = None) -> np.ndarray[Any, Any]:
    out = np.zeros(like.shape, like.dtype)
    at = where(layout) if layout is not None else None
    size = API.call("Buffer_ToHostBuffer", src=b, host_layout=at).dst_size
    assert size == out.nbytes
    API.call("Buffer_ToHostBuffer", src=b, host_layout=at, dst=out.ctypes.data, dst_size=size)
    return out


def pointer(b: int) -> int:
    return API.call("Buffer_UnsafePointer", buffer=b).buffer_pointer


def deleted(b: int) -> bool:
    return API.call("Buffer_IsDeleted", buffer=b).is_deleted


def ready(event: int) -> bool:
    return API.call("Event_IsReady", event=event).is_ready


def compiled(text: str, form: bytes = b"mlir") -> int:
    data = text.encode()
    program = struct("PJRT_Program")(
        code=text_at(data), code_size=len(data),
        format=text_at(form), format_size=len(form),
    )  # fmt: skip
    return API.call("Client_Compile", client=CLIENT, program=where(program)).executable


def facts(loaded: int) -> int:
    return API.call("LoadedExecutable_GetExecutable", loaded_executable=loaded).executable


def execute(loaded: int, inputs: Sequence[int], keep: Sequence[int] = ()) -> list[int]:
    count = API.call("Executable_NumOutputs", executable=facts(loaded)).num_outputs
    given = (ctypes.c_void_p * max(len(inputs), 1))(*inputs)
    found = (ctypes.c_void_p * max(count, 1))()
    lists = (ctypes.c_void_p * 1)(where(given)), (ctypes.c_void_p * 1)(where(found))
    kept, events = dims(keep), (ctypes.c_void_p * 1)()
    options = struct("PJRT_ExecuteOptions")(
        non_donatable_input_indices=where(kept), num_non_donatable_input_indices=len(keep)
    )
    API.call(
        "LoadedExecutable_Execute", executable=loaded, options=where(options), num_devices=1,
        argument_lists=where(lists[0]), output_lists=where(lists[1]), num_args=len(inputs),
        device_complete_events=where(events),
    )  # fmt: skip
    assert ready(events[0])
    API.call("Event_Await", event=events[0])
    return [int(b) for b in found[:count]]


@pytest.fixture(scope="module")
def sums() -> int:
    return compiled(ADD)


def test_every_slot_of_the_table_is_filled() -> None:
    """A caller that finds null there ends the process."""
    assert not [name for name, address in API.functions.items() if not address]
    assert API.table.struct_size == ctypes.sizeof(API.table)


def test_what_is_not_there_says_so_by_name() -> None:
    with pytest.raises(PjrtError, match="PJRT_Client_DmaMap is not there") as e:
        API.call("Client_DmaMap")
    assert e.value.code == UNIMPLEMENTED


def test_the_client() -> None:
    said = API.call("Client_PlatformName", client=CLIENT)
    assert ctypes.string_at(said.platform_name, said.platform_name_size) == b"rlx"
    assert API.call("Client_Devices", client=CLIENT).num_devices == 1
    assert API.call("Client_LookupDevice", client=CLIENT, id=0).device == DEVICE
    with pytest.raises(PjrtError, match="device 0 alone"):
        API.call("Client_LookupDevice", client=CLIENT, id=1)
    versions = API.call("Plugin_Attributes")
    first = struct("PJRT_NamedValue").from_address(versions.attributes)
    assert ctypes.string_at(first.name, first.name_size) == b"stablehlo_current_version"


def test_a_call(sums: int) -> None:
    outputs = execute(sums, [buffer(X)[0], buffer(Y)[0]])
    np.testing.assert_array_equal(array(outputs[0], X), X + Y)
    assert array(outputs[1], np.zeros((), np.int32)) == 7
    said = API.call("Executable_Name", executable=facts(sums))
    assert ctypes.string_at(said.executable_name, said.executable_name_size) == b"sums"


@pytest.mark.parametrize("change", [lambda a: a.T, lambda a: a[::-1, ::2], lambda a: a[:0]],
                         ids=["transposed", "steps", "empty"])  # fmt: skip
def test_arrays_of_any_strides(change: Callable[[Any], Any]) -> None:
    a = change(np.arange(12, dtype=np.int32).reshape(3, 4))
    np.testing.assert_array_equal(array(buffer(a)[0], a), a)


def test_another_layout_of_the_host() -> None:
    order = dims((0, 1))
    layout = struct("PJRT_Buffer_MemoryLayout")()
    layout.union.tiled.minor_to_major, layout.union.tiled.minor_to_major_size = where(order), 2
    found = array(buffer(X)[0], X, layout)
    np.testing.assert_array_equal(found.reshape(-1), X.T.reshape(-1))


def test_lent_memory_is_used_in_place_and_given_back() -> None:
    a = X.copy()
    b, done = buffer(a, "kImmutableZeroCopy")
    assert pointer(b) == a.ctypes.data
    assert not ready(done)
    called: list[int] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: called.append(1))
    API.call("Event_OnReady", event=done, callback=ctypes.cast(callback, ctypes.c_void_p).value)
    API.call("Buffer_Destroy", buffer=b)
    assert ready(done)
    assert called == [1]
    API.call("Event_Destroy", event=done)


def test_a_donated_argument_becomes_the_result(sums: int) -> None:
    b = buffer(Y)[0]
    at = pointer(b)
    (out, _) = execute(sums, [buffer(X)[0], b])
    assert (pointer(out), deleted(b)) == (at, True)
    np.testing.assert_array_equal(array(out, X), X + Y)
    with pytest.raises(PjrtError, match="deleted or donated"):
        execute(sums, [buffer(X)[0], b])


@pytest.mark.parametrize("reason", ["kept by the caller", "lent", "held", "passed twice"])
def test_what_others_read_is_not_written_over(sums: int, reason: str) -> None:
    y = Y.copy()
    b = buffer(y, "kImmutableZeroCopy" if reason == "lent" else "kImmutableOnlyDuringCall")[0]
    first = b if reason == "passed twice" else buffer(X)[0]
    at = pointer(b)
    if reason == "held":
        API.call("Buffer_IncreaseExternalReferenceCount", buffer=b)
    (out, _) = execute(sums, [first, b], [1] if reason == "kept by the caller" else [])
    assert pointer(out) != at
    assert deleted(b) == (reason != "kept by the caller")
    np.testing.assert_array_equal(array(out, X), (Y if reason == "passed twice" else X) + Y)
    if reason in ("lent", "held"):
        np.testing.assert_array_equal(np.ctypeslib.as_array(
            ctypes.cast(at, ctypes.POINTER(ctypes.c_float)), Y.shape), Y)  # fmt: skip
    if reason == "held":
        API.call("Buffer_DecreaseExternalReferenceCount", buffer=b)


def test_a_module_that_gives_nothing() -> None:
    loaded = compiled("func.func @main(%a: tensor<2x3xf32>) { return }")
    assert execute(loaded, [buffer(X)[0]]) == []


def test_a_donor_is_written_over_by_a_result_of_its_type() -> None:
    text = """func.func @main(%a: tensor<2x3xf32> {jax.buffer_donor = true},
        %b: tensor<i32> {jax.buffer_donor = true}) -> (tensor<2x3xf32>) {
      %s = stablehlo.negate %a : tensor<2x3xf32>
      return %s : tensor<2x3xf32> }"""
    a, b = buffer(X)[0], buffer(np.zeros((), np.int32))[0]
    at = pointer(a)
    (out,) = execute(compiled(text), [a, b])
    assert (pointer(out), deleted(a), deleted(b)) == (at, True, True)
    np.testing.assert_array_equal(array(out, X), -X)


def test_an_executable_as_bytes(sums: int) -> None:
    kept = API.call("Executable_Serialize", executable=facts(sums))
    again = API.call(
        "Executable_DeserializeAndLoad", client=CLIENT,
        serialized_executable=kept.serialized_bytes,
        serialized_executable_size=kept.serialized_bytes_size,
    ).loaded_executable  # fmt: skip
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kept.serialized_executable_deleter)(
        kept.serialized_executable
    )
    np.testing.assert_array_equal(array(execute(again, [buffer(X)[0], buffer(Y)[0]])[0], X), X + Y)
    API.call("LoadedExecutable_Destroy", executable=again)


MISSING = """func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %b = stablehlo.custom_call @one(%a) : (tensor<2xf32>) -> tensor<2xf32>
  %c = stablehlo.custom_call @two(%a) : (tensor<2xf32>) -> tensor<2xf32>
  return %b : tensor<2xf32> }"""


@pytest.mark.parametrize(
    ("text", "form", "code", "message"),
    [
        ("func.func @main(", b"mlir", INVALID, "cannot parse"),
        ("module {}", b"mlir", INVALID, "no function 'main'"),
        (ADD, b"hlo", UNIMPLEMENTED, "found a program as 'hlo'"),
        (
            "func.func @main(%a: tensor<?xf32>) { return }",
            b"mlir",
            UNIMPLEMENTED,
            "a dim that is known in a run alone",
        ),
        (MISSING, b"mlir", UNIMPLEMENTED, "custom_call of 'one' x 1.*of 'two' x 1"),
        ("func.func @main(%a: tensor<2xf8E3M4>) -> tensor<2xf8E3M4> { return %a : tensor<2xf8E3M4> }",
         b"mlir", UNIMPLEMENTED, "no element type f8E3M4"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled(text: str, form: bytes, code: int, message: str) -> None:
    with pytest.raises(PjrtError, match=f"RLX: .*{message}") as e:
        compiled(text, form)
    assert e.value.code == code


def test_calls_that_do_not_fit(sums: int) -> None:
    with pytest.raises(PjrtError, match="sums takes 2 arguments, found 1"):
        execute(sums, [buffer(X)[0]])
    with pytest.raises(PjrtError, match="argument 1 of sums is not of the type"):
        execute(sums, [buffer(X)[0], buffer(X.astype(np.int32))[0]])
    loaded = compiled(ADD)
    API.call("LoadedExecutable_Delete", executable=loaded)
    with pytest.raises(PjrtError, match="the executable was deleted"):
        execute(loaded, [buffer(X)[0], buffer(Y)[0]])


def test_a_fault_says_what_went_wrong() -> None:
    loaded = compiled("""func.func @main(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %b = stablehlo.cholesky %a, lower = true : tensor<2x2xf32>
      return %b : tensor<2x2xf32> }""")
    with pytest.raises(PjrtError, match=r"RLX: .*not positive definite") as e:
        execute(loaded, [buffer(-np.eye(2, dtype=np.float32))[0]])
    assert e.value.code == INTERNAL


def test_events_of_the_caller() -> None:
    event = API.call("Event_Create").event
    assert not ready(event)
    message = b"lost"
    API.call("Event_Set", event=event, error_code=INTERNAL, error_message_size=4,
             error_message=text_at(message))  # fmt: skip
    assert ready(event)
    with pytest.raises(PjrtError, match="lost"):
        API.call("Event_Await", event=event)
    with pytest.raises(PjrtError, match="set once"):
        API.call("Event_Set", event=event)
    API.call("Event_Destroy", event=event)

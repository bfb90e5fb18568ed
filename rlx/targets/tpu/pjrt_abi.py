"""The layouts of PJRT's C interface, 0.x: what compiling and running need, and no more.

They are facts of ``pjrt_c_api.h`` of OpenXLA: every struct begins with its own size and a pointer
to extensions, and only ever grows at its end.
https://github.com/openxla/xla/blob/main/xla/pjrt/c/pjrt_c_api.h
"""

from __future__ import annotations

import ctypes as c
from functools import cache
from typing import Any

__all__ = [
    "ELEMENTS", "MAJOR", "POINTER", "STRUCTS", "Api", "ExecuteOptions", "NamedValue", "Program",
    "arguments",
]  # fmt: skip

MAJOR = 0
POINTER, SIZE, TEXT = c.c_void_p, c.c_size_t, c.c_char_p

FUNCTIONS = [
    "Error_Destroy",
    "Error_Message",
    "Error_GetCode",
    "Plugin_Initialize",
    "Plugin_Attributes",
    "Event_Destroy",
    "Event_IsReady",
    "Event_Error",
    "Event_Await",
    "Event_OnReady",
    "Client_Create",
    "Client_Destroy",
    "Client_PlatformName",
    "Client_ProcessIndex",
    "Client_PlatformVersion",
    "Client_Devices",
    "Client_AddressableDevices",
    "Client_LookupDevice",
    "Client_LookupAddressableDevice",
    "Client_AddressableMemories",
    "Client_Compile",
    "Client_DefaultDeviceAssignment",
    "Client_BufferFromHostBuffer",
    "DeviceDescription_Id",
    "DeviceDescription_ProcessIndex",
    "DeviceDescription_Attributes",
    "DeviceDescription_Kind",
    "DeviceDescription_DebugString",
    "DeviceDescription_ToString",
    "Device_GetDescription",
    "Device_IsAddressable",
    "Device_LocalHardwareId",
    "Device_AddressableMemories",
    "Device_DefaultMemory",
    "Device_MemoryStats",
    "Memory_Id",
    "Memory_Kind",
    "Memory_DebugString",
    "Memory_ToString",
    "Memory_AddressableByDevices",
    "Executable_Destroy",
    "Executable_Name",
    "Executable_NumReplicas",
    "Executable_NumPartitions",
    "Executable_NumOutputs",
    "Executable_SizeOfGeneratedCodeInBytes",
    "Executable_GetCostAnalysis",
    "Executable_OutputMemoryKinds",
    "Executable_OptimizedProgram",
    "Executable_Serialize",
    "LoadedExecutable_Destroy",
    "LoadedExecutable_GetExecutable",
    "LoadedExecutable_AddressableDevices",
    "LoadedExecutable_Delete",
    "LoadedExecutable_IsDeleted",
    "LoadedExecutable_Execute",
    "Executable_DeserializeAndLoad",
    "LoadedExecutable_Fingerprint",
    "Buffer_Destroy",
    "Buffer_ElementType",
    "Buffer_Dimensions",
    "Buffer_UnpaddedDimensions",
    "Buffer_DynamicDimensionIndices",
    "Buffer_GetMemoryLayout",
    "Buffer_OnDeviceSizeInBytes",
    "Buffer_Device",
    "Buffer_Memory",
    "Buffer_Delete",
    "Buffer_IsDeleted",
    "Buffer_CopyToDevice",
    "Buffer_ToHostBuffer",
    "Buffer_IsOnCpu",
    "Buffer_ReadyEvent",
    "Buffer_UnsafePointer",
    "Buffer_IncreaseExternalReferenceCount",
    "Buffer_DecreaseExternalReferenceCount",
    "Buffer_OpaqueDeviceMemoryDataPointer",
    "CopyToDeviceStream_Destroy",
    "CopyToDeviceStream_AddChunk",
    "CopyToDeviceStream_TotalBytes",
    "CopyToDeviceStream_GranuleSize",
    "CopyToDeviceStream_CurrentBytes",
    "TopologyDescription_Create",
    "TopologyDescription_Destroy",
    "TopologyDescription_PlatformName",
    "TopologyDescription_PlatformVersion",
    "TopologyDescription_GetDeviceDescriptions",
    "TopologyDescription_Serialize",
    "TopologyDescription_Attributes",
    "Compile",
    "Executable_OutputElementTypes",
    "Executable_OutputDimensions",
    "Buffer_CopyToMemory",
    "Client_CreateViewOfDeviceBuffer",
    "Executable_Fingerprint",
    "Client_TopologyDescription",
    "Executable_GetCompiledMemoryStats",
]
"""The functions of the table, in its order, as far as they are called here."""

ELEMENTS = {
    name: number
    for number, name in enumerate(
        ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "bf16",
         "c64", "c128"), 1
    )
}  # fmt: skip
"""PJRT_Buffer_Type of element types."""


class Api(c.Structure):
    """The table of functions."""

    _fields_ = [
        ("struct_size", SIZE), ("extensions", POINTER),
        ("version_size", SIZE), ("version_extensions", POINTER), ("major", c.c_int),
        ("minor", c.c_int), *[(name, POINTER) for name in FUNCTIONS],
    ]  # fmt: skip


class Program(c.Structure):
    """A program to compile, and the name of its format."""

    _fields_ = [
        ("struct_size", SIZE), ("extensions", POINTER), ("code", POINTER), ("code_size", SIZE),
        ("format", TEXT), ("format_size", SIZE),
    ]  # fmt: skip


class NamedValue(c.Structure):
    """A property; ``type`` 1 is an int64, 3 a float in the first bytes of ``value``."""

    _fields_ = [
        ("struct_size", SIZE), ("extensions", POINTER), ("name", POINTER), ("name_size", SIZE),
        ("type", c.c_int), ("value", c.c_int64), ("value_size", SIZE),
    ]  # fmt: skip


class ExecuteOptions(c.Structure):
    """How to run: by defaults, zeros."""

    _fields_ = [
        ("struct_size", SIZE), ("extensions", POINTER), ("send", POINTER), ("receive", POINTER),
        ("sends", SIZE), ("receives", SIZE), ("launch", c.c_int), ("kept", POINTER),
        ("kept_count", SIZE), ("context", POINTER), ("call_location", POINTER),
        ("tasks", SIZE), ("task_ids", POINTER), ("incarnations", POINTER),
    ]  # fmt: skip


_KINDS: dict[str, Any] = {
    "p": POINTER, "n": SIZE, "i": c.c_int, "q": c.c_int64, "s": TEXT,
    "l": c.POINTER(POINTER), "v": c.POINTER(NamedValue),
}  # fmt: skip

STRUCTS = {
    "Error_Destroy": "p:error",
    "Error_Message": "p:error p:message n:size",
    "Plugin_Initialize": "",
    "Event_Await": "p:event",
    "Event_Destroy": "p:event",
    "TopologyDescription_Create": "s:name n:size p:options n:count p:topology",
    "TopologyDescription_Destroy": "p:topology",
    "TopologyDescription_GetDeviceDescriptions": "p:topology l:devices n:count",
    "DeviceDescription_Kind": "p:device p:kind n:size",
    "Compile": "p:topology p:program s:options n:size p:client p:executable",
    "Executable_Serialize": "p:executable p:data n:size p:held p:deleter",
    "Executable_Destroy": "p:executable",
    "Executable_GetCompiledMemoryStats":
        "p:executable q:code q:arguments q:outputs q:aliases q:temporaries q:host_code"
        " q:host_arguments q:host_outputs q:host_aliases q:host_temporaries q:peak",
    "Executable_GetCostAnalysis": "p:executable n:count v:properties",
    "Client_Create": "p:options n:count p:get p:get_arg p:put p:put_arg p:client p:try p:try_arg",
    "Client_Destroy": "p:client",
    "Client_PlatformName": "p:client p:name n:size",
    "Client_AddressableDevices": "p:client l:devices n:count",
    "Device_GetDescription": "p:device p:description",
    "Client_Compile": "p:client p:program s:options n:size p:executable",
    "Executable_DeserializeAndLoad": "p:client s:data n:size p:executable s:options n:more",
    "LoadedExecutable_Destroy": "p:executable",
    "Client_BufferFromHostBuffer":
        "p:client p:data i:type p:dims n:rank p:strides n:stride_count i:semantics p:device"
        " p:memory p:layout p:done p:buffer",
    "Buffer_ToHostBuffer": "p:buffer p:layout p:data n:size p:event",
    "Buffer_Destroy": "p:buffer",
    "LoadedExecutable_Execute":
        "p:executable p:options p:arguments n:devices n:count p:outputs p:events p:device",
}  # fmt: skip
"""The fields of each function's argument, after the two that all have."""


@cache
def _struct(name: str) -> type[c.Structure]:
    rows = [field.split(":") for field in STRUCTS[name].split()]
    fields = [(field, _KINDS[kind]) for kind, field in rows]
    head = [("struct_size", SIZE), ("extensions", POINTER)]
    return type(name, (c.Structure,), {"_fields_": [*head, *fields]})


def arguments(name: str, /, **fields: Any) -> Any:
    """The argument of a function, with some fields given and the rest zero."""
    cls = _struct(name)
    made = cls()
    made.struct_size = c.sizeof(cls)  # pyright: ignore[reportAttributeAccessIssue]
    for field, value in fields.items():
        setattr(made, field, value)
    return made

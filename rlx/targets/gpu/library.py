"""The library of an API, found by its names and called through ctypes."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx import knobs
from rlx.base.frozen import frozen
from rlx.base.world import local_rank
from rlx.errors import DeviceError, DeviceLostError, OutOfMemoryError

__all__ = ["Codes", "Library", "address", "choose", "signature"]

_TYPES: dict[str, Any] = {
    "p": c.c_void_p,
    "u": c.c_uint32,
    "i": c.c_int32,
    "q": c.c_uint64,
    "z": c.c_size_t,
    "s": c.c_char_p,
    "v": None,
}


def signature(letters: str) -> tuple[Any, list[Any]]:
    """What a function returns and takes, by letters: p a pointer, u and i 32-bit integers without
    and with sign, q a 64-bit one, z a size, s a string, v nothing; ``:p`` follows where a pointer
    is returned, and no code."""
    given, _, returned = letters.partition(":")
    return _TYPES[returned or "i"], [_TYPES[letter] for letter in given]


@frozen
class Codes:
    """What an API's error codes mean: their names, which are for want of memory, and which say
    that the device is gone."""

    names: Mapping[int, str]
    memory: tuple[int, ...]
    lost: tuple[int, ...]

    def error(self, function: str, code: int, said: str = "") -> DeviceError:
        """The error of a call that failed; ``said`` is what the driver said of it."""
        name = self.names.get(code, "unknown to RLX")
        text = f"{function} failed with {code} ({name}){said and ': '}{said}"
        if code in self.memory:
            return OutOfMemoryError(text)
        if code in self.lost:
            return DeviceLostError(text)
        return DeviceError(text)


class Library:
    """The functions of a library by name, each of which returns an error code, 0 for success.

    ``functions`` has their arguments by letters, which ``signature`` reads.
    DeviceError where the library is not found; ``hint`` says then where it comes from.
    """

    def __init__(
        self, names: Sequence[str], functions: Mapping[str, str], codes: Codes, hint: str
    ) -> None:
        self.codes = codes
        failures: list[str] = []
        for name in names:
            try:
                self.library = c.CDLL(name)
                break
            except OSError as e:
                failures.append(str(e).splitlines()[0])
        else:
            raise DeviceError(f"{failures[0]}; {hint}")
        for name, letters in functions.items():
            function = getattr(self.library, name, None)
            if function is None:
                raise DeviceError(f"the library {self.library._name} has no {name}; {hint}")
            function.restype, function.argtypes = signature(letters)

    def plain(self, name: str, *args: Any) -> int:
        """Call a function and return what it returns."""
        return getattr(self.library, name)(*args)

    def __call__(self, name: str, *args: Any) -> None:
        """Call a function; an error of ``Codes.error`` if it fails."""
        code = self.plain(name, *args)
        if code:
            raise self.codes.error(name, code)


def address(view: memoryview) -> tuple[int, Any]:
    """Where the bytes of a view are, and what must live as long as the address is used."""
    array = np.frombuffer(view, np.uint8)
    return array.ctypes.data, array


def choose(api: str, names: Sequence[str], ranks: Sequence[int]) -> int:
    """The device to use of those with such names: the one that RLX_GPU says, by its number or a
    part of its name, or else the first of the lowest rank; processes of ``rlx launch`` or MPI on
    one machine take those of the lowest rank in turn. DeviceError if there is none."""
    wanted = knobs.gpu.get()
    listed = ", ".join(f"{i} {name!r}" for i, name in enumerate(names)) or "none"
    if not names:
        raise DeviceError(f"{api} works, but finds no device")
    if not wanted:
        best = [i for i, rank in enumerate(ranks) if rank == min(ranks)]
        return best[local_rank() % len(best)]
    for i, name in enumerate(names):
        if wanted == str(i) or (not wanted.isdigit() and wanted.lower() in name.lower()):
            return i
    raise DeviceError(f"{api} has no device RLX_GPU={wanted}; there are {listed}")

"""``rlx devices``: the devices of this machine, and why others are not there."""

from __future__ import annotations

import argparse
import json

from rlx.base.device_names import DEVICE_PRIORITY, label
from rlx.runtime.backend import why_not
from rlx.runtime.devices.available import available_devices, full_name

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("--json", action="store_true", help="print plain data in place of a table")


def run(args: argparse.Namespace) -> int:
    """Print the devices that can be used, from the one that is expected to be fastest on, and then
    the others."""
    found = available_devices()
    rows = [(d, full_name(d), "") for d in found]
    rows += [(d, label(d), why_not(d)) for d in DEVICE_PRIORITY if d not in found]
    if args.json:
        keys = ("device", "name", "missing")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1))
        return 0
    width = max(len(name) for name, _, _ in rows)
    for device, name, why in rows:
        state = "available" if not why else "-"
        print(f"{device:{width}s}  {state:9s}  {name}{why and ': '}{why}")
    return 0

"""What is no IR ends in one located line, never in a traceback or a crash."""
# RUN: %python %s %t
# RUN: not %rlx-opt %t.random 2>&1 | %filecheck %s --check-prefix=RANDOM
# RUN: not %rlx-opt %t.zero 2>&1 | %filecheck %s --check-prefix=ZERO
# RUN: not %rlx-opt %t.deep 2>&1 | %filecheck %s --check-prefix=DEEP
# RUN: not %rlx-opt %t.cut 2>&1 | %filecheck %s --check-prefix=CUT
# RUN: not %rlx-opt %t.missing 2>&1 | %filecheck %s --check-prefix=MISSING
# RUN: not %rlx-opt %t.cut -o %t.no/such/folder 2>&1 | %filecheck %s --check-prefix=CUT
# RUN: %rlx-opt %t.empty | %filecheck %s --check-prefix=EMPTY
# RUN: not %rlx-opt %t.empty -o %t.no/such/folder 2>&1 | %filecheck %s --check-prefix=FOLDER

# RANDOM: rlx-opt: {{.*}}.random:1: byte 0xff at offset 5 is not text; rlx-opt reads MLIR's text form
# ZERO: rlx-opt: {{.*}}.zero:2: byte 0x00 at offset 9 is not text
# DEEP: .deep:1:{{[0-9]+}}: error: the text nests deeper than 256 here
# CUT: .cut:2:{{[0-9]+}}: error: expected
# CUT-NOT: Traceback
# MISSING: rlx-opt: {{.*}}.missing: No such file or directory
# EMPTY: module {
# FOLDER: rlx-opt: {{.*}}folder: No such file or directory

# ruff: noqa: E501 (patterns do not break)

import sys
from pathlib import Path

FILES = {
    "random": b"\x7fELF\x01\xff\xfe",
    "zero": b"module {\n\0}",
    "deep": b'"test.op"() {a = ' + b"[" * 100_000,
    "cut": b'module {\n  func.func @main(%x: tensor<2xf32> {rlx.input = "x"',
    "empty": b"",
}

if __name__ == "__main__":
    for name, data in FILES.items():
        Path(f"{sys.argv[1]}.{name}").write_bytes(data)

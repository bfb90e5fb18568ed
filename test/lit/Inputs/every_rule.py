"""Fails unless a lit file has a function for every row of RULES, and for nothing else."""

import re
import sys
from pathlib import Path

from rlx.lowering.rules import RULES

found = set(re.findall(r"^func\.func @(\w+)", Path(sys.argv[1]).read_text(), re.MULTILINE))
rows = {r.name.replace("-", "_") for r in RULES}
if found != rows:
    sys.exit(f"rows without a function: {rows - found}; functions without a row: {found - rows}")

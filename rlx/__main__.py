"""``python -m rlx``: the command ``rlx``."""

from __future__ import annotations

import sys

from rlx.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())

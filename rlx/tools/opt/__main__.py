"""``python -m rlx.tools.opt``."""

import sys

from rlx.tools.opt.command import main

if __name__ == "__main__":
    sys.exit(main())

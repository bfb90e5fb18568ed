"""Print what pyproject.toml needs for a build, one requirement a line, for pip.

The editable install builds without isolation, so that CMake's build directory stays valid and a
change of one C++ file rebuilds that file only.
"""

import tomllib
from pathlib import Path

if __name__ == "__main__":
    project = Path(__file__).resolve().parent.parent / "pyproject.toml"
    print("\n".join(tomllib.loads(project.read_text())["build-system"]["requires"]))

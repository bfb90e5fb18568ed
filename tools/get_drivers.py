"""Put software drivers of Vulkan, OpenCL and OpenGL into .drivers, for machines without a GPU.

    python tools/get_drivers.py && . .drivers/env

Nothing is installed and no rights are needed: packages of Debian or Ubuntu are downloaded by apt,
and unpacked. ``.drivers/env`` has what a shell must set for the system's loaders to find them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".drivers"

LISTS = Path("/var/lib/apt/lists")

DEBIAN = (
    "libvulkan1", "mesa-vulkan-drivers", "vulkan-validationlayers", "spirv-tools",
    "ocl-icd-libopencl1", "pocl-opencl-icd", "libegl1", "libegl-mesa0", "libgl1-mesa-dri",
    "glslang-tools",
)  # fmt: skip
"""The loaders, lavapipe, PoCL and llvmpipe, what checks the use of Vulkan, and SPIR-V, and what
compiles GLSL and HLSL to SPIR-V."""


BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""What runs WebGPU, by SwiftShader; the first is fetched where none is here."""

BROWSER = ("chromium-headless-shell", "chromium-common")

DISASSEMBLER = "llvm-22"
"""What reads the code of every AMD GPU that RLX compiles for."""

DEVICES = ("vulkan", "gpu", "opencl", "opengl", "metal", "directx")
"""What there is then to run on: "gpu" by the wgpu package that `make drivers` installs, "metal" as
C++, "directx" by glslang on Vulkan."""


def run(*command: str, cwd: Path | None = None) -> str:
    """The output of a command; ends the program with what it said if it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    except FileNotFoundError:
        sys.exit(
            f"there is no {command[0]} here: this fetches packages of Debian and Ubuntu;"
            " elsewhere install a driver of Vulkan or OpenCL as your system does"
        )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def apt(*words: str) -> list[str]:
    """A command of apt-get, with lists of packages of our own where the system has none."""
    if any(LISTS.glob("*_Packages*")):
        return ["apt-get", *words]
    lists, cache = FOLDER / "lists", FOLDER / "cache"
    own = "apt-get", "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}"
    if not lists.is_dir():
        for folder in (lists / "partial", cache / "archives" / "partial"):
            folder.mkdir(parents=True)
        run(*own, "update")
    return [*own, *words]


def offered(package: str) -> bool:
    """Whether apt has a package; if not, says so, and the tests that need it are skipped."""
    words = apt("--simulate", "--no-install-recommends", "install", package)
    found = subprocess.run(words, capture_output=True, check=False).returncode == 0
    if not found:
        print(f"this system's packages have no {package}: tests that need it are skipped")
    return found


def browser() -> str | None:
    """The browser that is on the path."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def unpack(root: Path, packages: Path) -> None:
    """The Debian packages, and those that they need and the system has not, as files in root."""
    wanted, whole = [*DEBIAN], set[str]()
    if browser() is None and offered(BROWSER[0]):
        wanted, whole = [*wanted, *BROWSER], {*BROWSER}  # its files lie beside one another
    if shutil.which("llvm-objdump-22") is None and offered(DISASSEMBLER):
        wanted.append(DISASSEMBLER)
    # What the system has already is found there, but for drivers: theirs are taken as they are.
    fetch(root, packages, wanted, whole)


def fetch(root: Path, packages: Path, wanted: Iterable[str], whole: Iterable[str] = ()) -> None:
    """Packages, and those that they need, as files in root: those that the system lacks, and the
    ``whole`` ones in any case. The packages themselves lie in a folder of their own."""
    planned = run(*apt("--simulate", "--no-install-recommends", "install", *wanted))
    needed = sorted({*re.findall(r"^Inst (\S+) \(", planned, re.MULTILINE), *whole})
    if needed:
        run(*apt("download", *needed), cwd=packages)
    for package in sorted(packages.glob("*.deb")):
        run("dpkg", "-x", str(package), str(root))


def one(root: Path, pattern: str) -> Path | None:
    """A file that was unpacked, or that the system has."""
    for place in (root, Path("/")):
        if found := sorted((place / "usr").glob(pattern)):
            return found[0]
    return None


def described(root: Path, pattern: str, folder: Path) -> Path:
    """A loader's description of a library, copied to ``folder`` with the library's whole path."""
    source = one(root, pattern)
    if source is None:
        sys.exit(f"the packages have no {pattern}")
    text = json.loads(source.read_text(encoding="utf-8"))
    part = text.get("ICD") or text["layer"]
    library = one(root, f"lib/*/{Path(part['library_path']).name}")
    part["library_path"] = str(library)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / source.name).write_text(json.dumps(text, indent=1), encoding="utf-8")
    return folder / source.name


def main() -> None:
    """Fetch everything anew, and write the file for the shell."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    root, packages = FOLDER / "root", FOLDER / "packages"
    for folder in (root, packages):
        folder.mkdir(parents=True)
    unpack(root, packages)
    for folder in (packages, FOLDER / "lists", FOLDER / "cache"):
        shutil.rmtree(folder, ignore_errors=True)

    icd = described(root, "share/vulkan/icd.d/lvp_icd.*.json", FOLDER / "icd")
    layer = described(root, "share/vulkan/explicit_layer.d/*khronos_validation.json",
                      FOLDER / "layers")  # fmt: skip
    egl = described(root, "share/glvnd/egl_vendor.d/*mesa.json", FOLDER / "egl")
    has_browser = (root / "usr/lib/chromium" / BROWSER[0]).is_file() or browser() is not None
    has_disassembler = one(root, "bin/llvm-objdump-22") is not None
    pocl, llvmpipe = one(root, "lib/*/libpocl.so.2*"), one(root, "lib/*/dri/swrast_dri.so")
    (FOLDER / "opencl").mkdir()
    (FOLDER / "opencl" / "pocl.icd").write_text(f"{pocl}\n", encoding="utf-8")
    folders = sorted(root.glob("usr/lib/*-linux-*"))
    folders += [root / "lib" / folder.name for folder in folders]  # one folder on a system
    # Libraries that only one package uses lie in a folder below, which it names as in /usr.
    folders += sorted({p.parent for folder in folders for p in folder.glob("*/lib*.so*")})
    libraries = ":".join(map(str, folders))
    lines = {
        "VK_DRIVER_FILES": icd,
        "VK_ICD_FILENAMES": icd,  # what older loaders read
        "VK_LAYER_PATH": layer.parent,
        "OCL_ICD_VENDORS": FOLDER / "opencl",
        "__EGL_VENDOR_LIBRARY_FILENAMES": egl,
        "LIBGL_DRIVERS_PATH": llvmpipe and llvmpipe.parent,  # Mesa from 24.2 on has no such file
        "LD_LIBRARY_PATH": f"{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}",
        "PATH": f"{root}/usr/lib/chromium:{root}/usr/bin:$PATH",
        # The tests fail, and skip nothing, where one of these is not found.
        "RLX_TEST_DEVICES": " ".join([*DEVICES, *["webgpu"] * has_browser]),
        "RLX_TEST_JUDGES": " ".join(["cuda", *["rocm"] * has_disassembler]),
    }
    text = "".join(f'export {name}="{value}"\n' for name, value in lines.items() if value)
    (FOLDER / "env").write_text(text, encoding="utf-8")
    print(f"software drivers are in {FOLDER}; for this shell:  . {FOLDER / 'env'}")


if __name__ == "__main__":
    main()

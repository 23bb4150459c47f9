"""Builds libchunked_noise.so and the Python module over it. The options are environment variables, printed first.

CHUNKED_NOISE_CUDA: 1 builds the CUDA engine, 0 leaves it out; by default it is built when torch has CUDA and a toolkit
is found. CHUNKED_NOISE_WERROR=1 makes warnings errors. CHUNKED_NOISE_CXXFLAGS and CHUNKED_NOISE_LDFLAGS are added to
the flags (sanitizers, coverage). torch's own TORCH_CUDA_ARCH_LIST, CUDA_HOME and MAX_JOBS are obeyed.
"""

import json
import os
import shlex
import shutil
import sys
import zlib
from pathlib import Path

from setuptools import Extension, setup

try:
    import pybind11
    import torch
    from torch.utils import cpp_extension
except ImportError as error:
    sys.exit(
        f"chunked_noise is built against the torch that is installed, and `import {error.name}` failed: install "
        "torch, pybind11, ninja and setuptools, then run `pip install --no-build-isolation .`"
    )

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)
VERSION = Path("version.txt").read_text().strip()
SOURCES = json.loads(Path("csrc/sources.json").read_text())
HEADERS = sorted(str(path) for path in Path("csrc").rglob("*.*") if path.suffix in {".h", ".cuh"})
TORCH_VERSION = torch.__version__
TORCH_RELEASE = TORCH_VERSION.split("+")[0]
if tuple(int(part) for part in TORCH_RELEASE.split(".")[:2]) < (2, 11):
    sys.exit(f"chunked_noise needs torch 2.11 or newer, and torch {TORCH_VERSION} is installed")


def read_switch(name):
    """Returns "0", "1" or, where nothing is asked for, ""."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        sys.exit(f"{name} must be 0 or 1, got {value!r}")
    return value


def read_flags(name):
    """Returns the flags of an option, split as a shell splits them."""
    try:
        return shlex.split(os.environ.get(name, ""))
    except ValueError as error:
        sys.exit(f"{name} cannot be split into flags: {error}, got {os.environ[name]!r}")


CUDA_OPTION = read_switch("CHUNKED_NOISE_CUDA")
WERROR = read_switch("CHUNKED_NOISE_WERROR") == "1"
CUDA = CUDA_OPTION == "1" or (CUDA_OPTION != "0" and bool(torch.version.cuda and cpp_extension.CUDA_HOME))
if CUDA and not (torch.version.cuda and cpp_extension.CUDA_HOME):
    sys.exit(
        "CHUNKED_NOISE_CUDA=1 needs a CUDA toolkit and a CUDA torch: "
        f"{cpp_extension.CUDA_HOME = }, {torch.version.cuda = }"
    )
if CUDA and not os.environ.get("TORCH_CUDA_ARCH_LIST"):
    # Whatever GPU this machine has, or none: binaries for the common ones, PTX for the newer.
    blackwell = tuple(map(int, torch.version.cuda.split("."))) >= (12, 8)
    os.environ["TORCH_CUDA_ARCH_LIST"] = "7.5;8.0;8.6;8.9;9.0" + (";10.0;12.0+PTX" if blackwell else "+PTX")
CUDA_ARCHS = os.environ.get("TORCH_CUDA_ARCH_LIST") if CUDA else None
print(f"chunked_noise {VERSION}: {TORCH_VERSION = }, {CUDA = }, {CUDA_ARCHS = }, {WERROR = }")
print(f"{cpp_extension.CUDA_HOME = }")

CXX_FLAGS = ["-O3", "-g0", "-fvisibility=hidden", "-ffp-contract=off", f'-DCHUNKED_NOISE_VERSION="{VERSION}"']
CXX_FLAGS += ["-Wall", "-Wextra", *(["-Werror"] if WERROR else [])]
ADDED_FLAGS = os.environ.get("CHUNKED_NOISE_CXXFLAGS", "")
CXX_FLAGS += read_flags("CHUNKED_NOISE_CXXFLAGS")
LINK_FLAGS = read_flags("CHUNKED_NOISE_LDFLAGS")


class Build(cpp_extension.BuildExtension):
    """Builds the library under its own name, then the module; puts the C++ SDK and the build record beside them."""

    def finalize_options(self):
        super().finalize_options()
        # Without ninja, a library that is newer than the sources would be kept, whatever torch and flags it was built
        # with, and be recorded as built for this torch. Ninja compares the commands.
        self.force = True
        # One place for the objects of every kind of install, so that a second build compiles only what has changed; and
        # another one for each set of added flags, so that sanitizers and coverage do not get into the normal objects.
        added = f"-{zlib.crc32(ADDED_FLAGS.encode()):08x}" if ADDED_FLAGS else ""
        self.build_temp = str(ROOT / "build" / f"torch-{TORCH_VERSION}-{sys.implementation.cache_tag}{added}")

    def get_ext_filename(self, name):
        if name.split(".")[-1] == "libchunked_noise":
            return str(Path(*name.split("."))) + ".so"
        return super().get_ext_filename(name)

    def build_extensions(self):
        try:
            super().build_extensions()
        except RuntimeError as error:  # a toolkit that does not fit, or a compiler that failed and has said why
            sentence, *values = error.args  # torch 2.14 forgets to put the values in
            sys.exit(sentence % tuple(values) if values else sentence)

    def build_extension(self, extension):
        if extension is MODULE:
            extension.library_dirs.append(str(Path(self.get_ext_fullpath(LIBRARY.name)).parent))
        super().build_extension(extension)

    def run(self):
        if self.inplace:
            Path("chunked_noise/lib").mkdir(exist_ok=True)  # setuptools copies into it, and does not make it
        super().run()
        package = Path(self.get_ext_fullpath(MODULE.name)).parent
        record = {"torch": TORCH_VERSION, "cuda": torch.version.cuda if CUDA else None, "cuda_archs": CUDA_ARCHS}
        (package / "build.json").write_text(json.dumps(record) + "\n")
        for source, target in (("csrc/include", "include"), ("cmake", "share/cmake/ChunkedNoise")):
            shutil.copytree(source, package / target, dirs_exist_ok=True)


def system_includes(paths):
    """Torch's headers, as system headers: their warnings are not ours."""
    return [flag for path in paths for flag in ("-isystem", path)]


def curand_includes():
    """Where curand's device functions are: in the toolkit, or in the packages that a CUDA torch is installed with."""
    roots = [cpp_extension.CUDA_HOME, *Path(torch.__file__).parent.parent.glob("nvidia/*")]
    found = [str(Path(root) / "include") for root in roots if (Path(root) / "include/curand_kernel.h").exists()]
    if not found:
        sys.exit("the CUDA engine needs curand_kernel.h: install nvidia-curand, or build with CHUNKED_NOISE_CUDA=0")
    return found[:1]


DEVICE = "cuda" if CUDA else "cpu"
TORCH_INCLUDES = system_includes(cpp_extension.include_paths(DEVICE) + (curand_includes() if CUDA else []))
LIBRARY = Extension(
    "chunked_noise.lib.libchunked_noise",
    SOURCES["library"] + (SOURCES["cuda"] if CUDA else []),
    include_dirs=[str(ROOT / "csrc"), str(ROOT / "csrc/include")],
    library_dirs=cpp_extension.library_paths(DEVICE),
    libraries=["c10", "torch_cpu", "torch"] + (["c10_cuda", "torch_cuda", "cudart"] if CUDA else []),
    extra_compile_args={
        "cxx": [*CXX_FLAGS, *TORCH_INCLUDES],
        "nvcc": ["-O3", "--expt-relaxed-constexpr", *TORCH_INCLUDES],
    },
    extra_link_args=["-Wl,--no-undefined", "-Wl,-soname,libchunked_noise.so", *LINK_FLAGS],
    depends=[*HEADERS, "setup.py", "version.txt"],
    language="c++",
)
MODULE = Extension(
    "chunked_noise._C",
    SOURCES["python"],
    include_dirs=[str(ROOT / "csrc"), str(ROOT / "csrc/include"), pybind11.get_include()],
    library_dirs=cpp_extension.library_paths("cpu"),
    libraries=["chunked_noise", "c10", "torch_cpu", "torch", "torch_python"],
    extra_compile_args={"cxx": [*CXX_FLAGS, *TORCH_INCLUDES]},
    extra_link_args=["-Wl,-rpath,$ORIGIN/lib", *LINK_FLAGS],
    depends=[*HEADERS, "setup.py", "version.txt"],
    language="c++",
)
setup(
    version=VERSION,
    ext_modules=[LIBRARY, MODULE],
    cmdclass={"build_ext": Build},
    # The build fits one torch; the pin also keeps pip from replacing the one that is installed.
    install_requires=[f"torch=={TORCH_RELEASE}"],
)

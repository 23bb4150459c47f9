"""Faults of building and installing that people met elsewhere, each replayed: docs/trust.md lists them.

Nothing here imports the package of this environment, so the file runs in any environment with torch. The tests of CUDA
builds need a CUDA torch; those that compile are slow.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import torch
from support import ROOT
from torch.utils import cmake_prefix_path

OTHER_TORCH = "2.14.1" if torch.__version__.startswith("2.13") else "2.13.0"
with_cuda = pytest.mark.skipif(torch.version.cuda is None, reason="needs a CUDA torch")
SMOKE = """
import torch, chunked_noise
from chunked_noise import reference
options = dict(seed=7, chunk_size=4, device="cpu", dtype=torch.float32)
noise = chunked_noise.sample_chunked_noise((2, 11, 5), **options)
assert torch.equal(noise, reference.sample_chunked_noise((2, 11, 5), **options))
assert torch.equal(torch.compile(lambda x: x + noise, backend="aot_eager")(noise), noise + noise)
print("noise from", chunked_noise.__file__, chunked_noise.show_config())
"""


def run(*command, check=True, cwd=os.path.sep, **environment):
    """Runs a command and returns what it printed; `check` asks for success, `check=False` for failure."""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    result = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=settings,
    )
    assert (result.returncode == 0) == check, f"{command}: exit status {result.returncode}\n{result.stdout[-5000:]}"
    assert "Traceback" not in result.stdout or check is False
    return result.stdout


def pip(python, *arguments, **options):
    return run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *arguments, **options)


def setup(tree, *arguments, prelude="pass", **options):
    """Runs setup.py after some lines of Python that change what it finds."""
    code = f"import runpy, sys; from torch.utils import cpp_extension; {prelude}; sys.argv = sys.argv[1:]; "
    return run(sys.executable, "-c", code + "runpy.run_path('setup.py')", "setup.py", *arguments, cwd=tree, **options)


@pytest.fixture
def tree(tmp_path):
    """A copy of the sources, in which nothing is built."""
    files = run("git", "ls-files", "-z", cwd=ROOT).split("\0")[:-1]
    for name in files:
        (tmp_path / "a tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / "a tree" / name)
    return tmp_path / "a tree"


@pytest.fixture
def environment(tmp_path):
    """The Python of a virtual environment that sees the packages of this one, torch among them."""
    venv.create(tmp_path / "an environment", with_pip=True)
    python = tmp_path / "an environment/bin/python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "parent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.slow
def test_wheel_in_a_clean_environment_and_another_torch_there(tree, tmp_path):
    """A wheel works where there is only torch; under another torch it says so, and works again under its own."""
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, ".", cwd=tree)
    version = (tree / "version.txt").read_text().strip()
    shutil.rmtree(tree)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean/bin/python"
    pip(python, f"torch=={torch.__version__}", "numpy")
    plan = run(python, "-m", "pip", "install", "--dry-run", wheel)
    assert re.search(rf"Would install chunked.noise-{re.escape(version)}$", plan, re.MULTILINE)  # and no torch
    pip(python, wheel)
    assert "noise from" in run(python, "-c", SMOKE)
    assert "bitwise unchanged" in run(python, "-m", "chunked_noise", "demo", wheel.parent / "clean/pyvenv.cfg")

    pip(python, f"torch=={OTHER_TORCH}")
    message = run(python, "-c", "import chunked_noise", check=False)
    assert re.search(rf"ImportError: .*built for torch {re.escape(torch.__version__)} and torch {OTHER_TORCH}", message)
    assert "run `pip install --no-build-isolation" in message
    pip(python, f"torch=={torch.__version__}")
    assert "noise from" in run(python, "-c", SMOKE)
    shutil.rmtree(tmp_path / "clean")  # gigabytes


def test_an_installation_keeps_the_torch_that_is_there(environment, tree):
    """Also with dependencies: they name the release of torch that the build is for."""
    plan = run(environment, "-m", "pip", "install", "--dry-run", "--no-build-isolation", ".", cwd=tree)
    (installed,) = re.findall("Would install (.*)", plan)
    assert re.search(r"\bchunked.noise-", installed)
    assert "torch" not in installed


@pytest.mark.slow
def test_an_editable_build_compiles_what_changed(environment, tree):
    objects = {}

    def build():
        """Returns the names of the object files that are new."""
        pip(environment, "--no-build-isolation", "--no-deps", "--editable", tree)
        before = objects.copy()
        objects.update((path.name, path.stat().st_mtime_ns) for path in (tree / "build").rglob("*.o"))
        return {name for name in objects if objects[name] != before.get(name)}

    assert {"library.o", "checks.o", "module.o"} < build()
    source = tree / "csrc/ops/checks.cpp"
    source.write_text(source.read_text().replace("chunk_size must be positive", "chunk_size must be much larger"))
    assert build() == {"checks.o"}
    bad_call = SMOKE.replace("chunk_size=4", "chunk_size=0")
    assert "chunk_size must be much larger, got 0" in run(environment, "-c", bad_call, check=False)
    assert "noise from" in run(environment, "-c", SMOKE)


@pytest.mark.slow
def test_without_ninja_and_without_a_toolkit(tree, tmp_path):
    """Compiles one file after the other, and only the CPU engine, whatever torch is there."""
    prelude = "cpp_extension.is_ninja_available = lambda: False; cpp_extension.CUDA_HOME = None"
    printed = setup(tree, "install_lib", "--install-dir", tmp_path / "site", prelude=prelude, CHUNKED_NOISE_CUDA="")
    assert "CUDA = False" in printed
    assert "other devices        aten" in run(
        sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1])\n" + SMOKE, tmp_path / "site"
    )


def test_cuda_that_cannot_be_built_is_refused(tree):
    printed = setup(tree, "build_ext", prelude="cpp_extension.CUDA_HOME = None", check=False, CHUNKED_NOISE_CUDA="1")
    assert "CHUNKED_NOISE_CUDA=1 needs a CUDA toolkit and a CUDA torch" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CHUNKED_NOISE_CUDA", "yes", "CHUNKED_NOISE_CUDA must be 0 or 1, got 'yes'"),
        ("CHUNKED_NOISE_WERROR", "2", "CHUNKED_NOISE_WERROR must be 0 or 1, got '2'"),
        ("CHUNKED_NOISE_CXXFLAGS", "-DX='", "CHUNKED_NOISE_CXXFLAGS cannot be split into flags: No closing quotation"),
        ("CHUNKED_NOISE_LDFLAGS", '"', "CHUNKED_NOISE_LDFLAGS cannot be split into flags: No closing quotation"),
    ],
)
def test_options_that_are_none(tree, name, value, message):
    printed = setup(tree, "--version", check=False, **{name: value})
    assert message in printed
    assert "Traceback" not in printed


def test_without_ninja_no_old_library_is_kept(tree, tmp_path):
    """One that was built for another torch is newer than every source."""
    package = tmp_path / "lib/chunked_noise"
    (package / "lib").mkdir(parents=True)
    (package / "lib/libchunked_noise.so").touch()
    (package / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}").touch()
    for source in (tree / "csrc").rglob("*.cpp"):
        source.write_text("#error asked to compile\n")
        os.utime(source, (0, 0))
    prelude = "cpp_extension.is_ninja_available = lambda: False; cpp_extension.CUDA_HOME = None"
    printed = setup(
        tree, "build_ext", "--build-lib", tmp_path / "lib", prelude=prelude, check=False, CHUNKED_NOISE_CUDA=""
    )
    assert "#error asked to compile" in printed
    assert not (package / "build.json").exists()


def test_make_deletes_nothing_outside_a_tree_with_a_space(tree):
    printed = run("make", "--dry-run", "coverage", cwd=tree)
    deleted = re.findall(r"^rm -rf (.*)", printed, re.MULTILINE)
    assert deleted == ["build/coverage/site build/coverage/run"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_cmake_needs_no_python(tree, tmp_path):
    """The library of CMake: no header and no library of Python, and a program that finds it where it is installed."""
    prefix = tmp_path / "a prefix"
    generate = ["cmake", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix};{cmake_prefix_path}"]
    run(*generate, "-S", tree, "-B", tmp_path / "build", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    commands = (tmp_path / "build/compile_commands.json").read_text()
    assert sysconfig.get_path("include") not in commands
    run("cmake", "--build", tmp_path / "build", "--parallel", "2")
    run("cmake", "--install", tmp_path / "build", "--prefix", prefix)
    library = prefix / "lib/libchunked_noise.so"
    assert "python" not in run("readelf", "-d", library).replace(cmake_prefix_path, "").split("RUNPATH")[0]
    assert not re.search(r"\bPy[A-Z_]", run("nm", "-Du", library))

    run(*generate, "-S", tree / "tests/consumer", "-B", tmp_path / "consumer")
    run("cmake", "--build", tmp_path / "consumer", "--parallel", "2")
    assert "chunk_size must be positive" in run(tmp_path / "consumer/direct", tmp_path / "out.pt")


@pytest.fixture
def toolkit(tmp_path):
    """Makes a toolkit whose nvcc only says its version."""

    def make(version):
        nvcc = tmp_path / "toolkit/bin/nvcc"
        nvcc.parent.mkdir(parents=True)
        (tmp_path / "toolkit/include").mkdir()
        (tmp_path / "toolkit/include/curand_kernel.h").touch()
        nvcc.write_text(
            f'#!/bin/sh\nif [ "$1" = --version ]; then echo "release {version}, V{version}.1"; exit; fi\n'
            'echo "asked to compile"; exit 1\n'
        )
        nvcc.chmod(0o755)
        return str(tmp_path / "toolkit")

    return make


@with_cuda
def test_a_toolkit_of_another_major_version_is_refused_before_compiling(tree, toolkit):
    printed = setup(tree, "build_ext", check=False, CUDA_HOME=toolkit("11.8"))
    assert re.search(rf"CUDA version \(11\.8\) mismatches the version .* \({re.escape(torch.version.cuda)}\)", printed)
    assert "asked to compile" not in printed
    assert "Traceback" not in printed


@with_cuda
def test_a_toolkit_of_another_minor_version_is_used_with_a_warning(tree, toolkit):
    home = toolkit(torch.version.cuda.split(".")[0] + ".9")
    printed = setup(tree, "build_ext", check=False, CUDA_HOME=home)
    assert "minor version mismatch" in printed
    assert "asked to compile" in printed


@with_cuda
@pytest.mark.parametrize("wanted", [None, "", "9.0+PTX"])
def test_architectures(tree, toolkit, wanted):
    """Without a list, or a GPU to look at: the common ones, and PTX for newer GPUs."""
    prelude = "import os; os.environ.pop('TORCH_CUDA_ARCH_LIST', None)"
    if wanted is not None:
        prelude = f"import os; os.environ['TORCH_CUDA_ARCH_LIST'] = {wanted!r}"
    printed = setup(tree, "--version", prelude=prelude, CUDA_HOME=toolkit(torch.version.cuda))
    (archs,) = re.findall("CUDA_ARCHS = '(.*?)'", printed)
    assert archs == wanted if wanted else {"8.0", "9.0"} < set(archs.split(";")) and archs.endswith("+PTX")


@with_cuda
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cuobjdump") is None, reason="needs cuobjdump")
def test_ptx_is_in_the_library(tree, tmp_path):
    setup(tree, "build_ext", "--build-lib", tmp_path / "lib", TORCH_CUDA_ARCH_LIST="9.0+PTX", CHUNKED_NOISE_CUDA="1")
    (library,) = (tmp_path / "lib").rglob("libchunked_noise.so")
    assert "sm_90" in run("cuobjdump", "--list-elf", library)
    assert "sm_90" in run("cuobjdump", "--list-ptx", library)

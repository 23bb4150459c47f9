"""What is installed and what is shipped."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
import torch
from support import ROOT, run_python

import chunked_noise

PACKAGE = Path(chunked_noise.__file__).parent
SOURCES = json.loads((ROOT / "csrc/sources.json").read_text())


def pip(*arguments, cwd=ROOT, python=sys.executable, **environment):
    return subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
    )


def test_one_version():
    version = (ROOT / "version.txt").read_text().strip()
    assert chunked_noise.__version__ == version
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_package_is_the_sdk():
    headers = {path.name for path in (ROOT / "csrc/include/chunked_noise").iterdir()}
    assert {path.name for path in (PACKAGE / "include/chunked_noise").iterdir()} == headers
    assert (Path(chunked_noise.cmake_prefix_path) / "ChunkedNoise/ChunkedNoiseConfig.cmake").exists()
    assert (PACKAGE / "py.typed").exists()


def test_the_library_links_no_python():
    library = PACKAGE / "lib/libchunked_noise.so"
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "libtorch_cpu.so" in dynamic
    assert "python" not in dynamic
    undefined = subprocess.run(["nm", "-Du", library], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"\bPy[A-Z_]", undefined)
    assert "GOMP" not in undefined  # no OpenMP runtime of its own


def test_every_source_is_listed():
    listed = set(SOURCES["library"] + SOURCES["cuda"] + SOURCES["python"])
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.c*") if path.suffix in {".cpp", ".cu"}}
    assert listed == found


@pytest.fixture
def copied_package(tmp_path):
    """A copy of the package whose build record a test can change; the library in it is the real one."""
    shutil.copytree(PACKAGE, tmp_path / "chunked_noise", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


IMPORT_CODE = """
import sys
sys.path.insert(0, sys.argv[1])
try:
    import chunked_noise
except ImportError as error:
    print(error)
"""


def test_another_torch_is_refused(copied_package):
    record = copied_package / "chunked_noise/build.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "torch": "2.12.0+cu130"}))
    message = run_python(IMPORT_CODE, str(copied_package))
    assert "built for torch 2.12.0+cu130" in message
    assert f"torch {torch.__version__} is running" in message
    assert "pip install --no-build-isolation" in message


def test_a_source_tree_that_is_not_built(copied_package):
    (copied_package / "chunked_noise/build.json").unlink()
    assert "is not built: run `pip install" in run_python(IMPORT_CODE, str(copied_package))
    (copied_package / "setup.py").touch()
    assert "is the source tree of chunked_noise, where nothing is built" in run_python(IMPORT_CODE, str(copied_package))


def test_two_copies(copied_package):
    """Loading the library again does nothing; a second copy leaves the operators to the first, and does not abort."""
    code = """
import sys, torch, chunked_noise
torch.ops.load_library(chunked_noise._load.PACKAGE / "lib/libchunked_noise.so")
torch.ops.load_library(sys.argv[1] + "/chunked_noise/lib/libchunked_noise.so")
print(torch.ops.chunked_noise.derive_chunk_seed(0, 1) % 2**64)
print(chunked_noise.sample_chunked_noise((1, 3, 4), seed=0, chunk_size=2, device="cpu", dtype=torch.float32).shape)
"""
    assert run_python(code, str(copied_package)).split("\n")[:2] == [str(0xB382A3058D1E9194), "torch.Size([1, 3, 4])"]


def test_sdist_builds_outside_the_git_tree(tmp_path):
    """Also: a path with a space, MAX_JOBS=1, and a wheel used outside of the source tree."""
    made = subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path), "sdist", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    place = tmp_path / "un packed"
    with tarfile.open(archive) as tar:
        tar.extractall(place, filter="data")
    (tree,) = place.iterdir()
    shipped = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    wanted = {p for p in tracked if p.startswith(("csrc/", "cmake/", "tests/", "chunked_noise/"))}
    wanted = wanted or set(SOURCES["library"])  # no git here
    assert wanted <= shipped
    assert not (tree / ".git").exists()

    target = tmp_path / "site packages"
    built = pip("install", "--no-build-isolation", "--no-deps", "--target", str(target), ".", cwd=tree, MAX_JOBS="1")
    assert built.returncode == 0, built.stdout + built.stderr
    code = IMPORT_CODE + "print(chunked_noise.__file__, chunked_noise.derive_chunk_seed(0, 0))"
    assert run_python(code, str(target)).split()[-1] == str(0xA706DD2F6FE23341)


@pytest.fixture(scope="session")
def empty_environment(tmp_path_factory):
    """A virtual environment without torch."""
    path = tmp_path_factory.mktemp("empty")
    venv.create(path, with_pip=True)
    python = path / "bin/python"
    installed = pip("install", "--quiet", "setuptools>=64", python=python)
    assert installed.returncode == 0, installed.stderr
    return python


def test_without_torch(empty_environment):
    result = pip("install", "--no-build-isolation", "--no-deps", ".", python=empty_environment)
    assert result.returncode != 0
    assert "chunked_noise is built against the torch that is installed" in result.stdout + result.stderr


def test_under_build_isolation():
    """The isolated build sees no torch, and says so."""
    result = pip("install", "--no-deps", "--target", "/nonexistent/target", ".")
    assert result.returncode != 0
    assert "run `pip install --no-build-isolation .`" in result.stdout + result.stderr

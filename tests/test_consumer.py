"""C++ programs that find the installed package with CMake, without Python in them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import ROOT, Layer, assert_same_bits
from torch.utils import cmake_prefix_path

import chunked_noise

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")


def run(*command, **options):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    build = tmp_path_factory.mktemp("consumer with a space")
    prefixes = f"{chunked_noise.cmake_prefix_path};{cmake_prefix_path}"
    run("cmake", "-S", ROOT / "tests/consumer", "-B", build, f"-DCMAKE_PREFIX_PATH={prefixes}")
    run("cmake", "--build", build, "--parallel", "2")
    return build


class WithSeed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x, -5)


def with_noise(x):
    return x + chunked_noise.sample_chunked_noise(x.shape, seed=2**64 - 5, chunk_size=4, device="cpu", dtype=x.dtype)


def test_models(programs, tmp_path):
    torch.jit.script(WithSeed()).save(str(tmp_path / "scripted.pt"))
    torch.jit.trace(with_noise, torch.ones(1, 5, 3)).save(str(tmp_path / "traced.pt"))
    run(programs / "models", tmp_path / "out.pt", tmp_path / "scripted.pt", tmp_path / "traced.pt")
    scripted, traced = torch.load(tmp_path / "out.pt", weights_only=False)
    assert_same_bits(scripted, WithSeed()(torch.ones(2, 11, 3)))
    assert_same_bits(traced, with_noise(torch.ones(2, 11, 3)))


def test_direct(programs, tmp_path):
    assert "chunk_size must be positive, got 0" in run(programs / "direct", tmp_path / "out.pt")
    noise, rebuilt = torch.load(tmp_path / "out.pt", weights_only=False)
    expected = chunked_noise.sample_chunked_noise((2, 11, 3), seed=-1, chunk_size=4, device="cpu", dtype=torch.bfloat16)
    assert_same_bits(noise, expected)
    assert_same_bits(rebuilt, expected)


@pytest.mark.parametrize("name", ["models", "direct"])
def test_no_python_in_the_program(programs, name):
    needed = run("readelf", "-d", programs / name)
    assert "libchunked_noise.so" in needed
    assert "libpython" not in run("ldd", programs / name)
    assert "libtorch_python" not in run("ldd", programs / name)


def test_readme_commands(tmp_path):
    """The commands of the README, on a copy of the example, as a reader would run them."""
    shutil.copytree(ROOT / "examples/cpp", tmp_path / "examples/cpp")
    section = (ROOT / "README.md").read_text().split("## Using it from C++")[1]
    commands = re.search(r"```bash\n(.*?)```", section, re.DOTALL)[1]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    output = run("bash", "-e", "-c", commands, cwd=tmp_path, env={**os.environ, "PATH": path})
    assert "TorchScript, AOTInductor and C++ agree" in output
    (results,) = tmp_path.rglob("results.pt")
    x = torch.ones(2, 100, 8)
    noise = chunked_noise.sample_chunked_noise(x.shape, seed=2**64 - 5, chunk_size=16, device="cpu", dtype=x.dtype)
    for result in torch.load(results, weights_only=False):
        assert_same_bits(result, torch.cumsum(x + noise, dim=1))
    for length in ("1", "15", "16", "17", "4096"):
        assert "agree" in run(results.parent / "inference", results.parent, length)

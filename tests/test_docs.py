"""The examples in docstrings and in the README run; the command line does what it says."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import mutation
import pytest
from support import ROOT

import chunked_noise

MODULES = [
    importlib.import_module(f"chunked_noise.{module.name}")
    for module in pkgutil.iter_modules(chunked_noise.__path__)
    if module.name not in ("__main__", "_C")
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_docstrings(module):
    import torch

    result = doctest.testmod(module, extraglobs={"torch": torch})
    assert result.failed == 0
    assert result.attempted > 0 or ">>>" not in Path(module.__file__).read_text()


def test_every_public_function_has_an_example():
    for name in (
        "derive_chunk_seed",
        "sample_chunked_noise",
        "gather_chunked_noise",
        "padded_chunks",
        "show_config",
        "warm_up",
    ):
        assert ">>>" in getattr(chunked_noise, name).__doc__, name


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_python_blocks(page):
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL):
        exec(compile(block, page, "exec"), namespace)


def command_line(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "chunked_noise", *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


def test_configuration():
    assert command_line().stdout == chunked_noise.show_config() + "\n"
    assert f"chunked_noise {chunked_noise.__version__}" in chunked_noise.show_config()


def test_demo_on_the_default_text():
    report = command_line("demo").stdout
    rows = [line for line in report.splitlines() if "bitwise unchanged" in line]
    assert report.startswith("README.md: ")
    assert [re.split("  +", row)[1] for row in rows] == ["bitwise unchanged"] * 3
    assert all("first changed at position" in row for row in rows[1:])


@pytest.mark.parametrize("content", [b"x", bytes(range(256)) * 3, "naïve ☃".encode(), b"\n" * 130])
def test_demo_on_any_file(tmp_path, content):
    (tmp_path / "text").write_bytes(content)
    result = command_line("demo", tmp_path / "text")
    assert result.returncode == 0
    assert result.stdout.count("bitwise unchanged") >= 3


def test_demo_on_no_file(tmp_path):
    (tmp_path / "empty").touch()
    for path, message in (("nowhere", "No such file"), ("", "Is a directory"), ("empty", "is empty")):
        result = command_line("demo", tmp_path / path)
        assert result.returncode == 1
        assert result.stdout == ""
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("page", "minimum"), [("modes.md", 30), ("trust.md", 15)])
def test_tables_of_promises_name_tests(page, minimum):
    """Nothing is said to work, or to be refused, without a test that shows it."""
    count = 0
    promises = False
    for line in (ROOT / "docs" / page).read_text().splitlines():
        cells = line.split("|")
        if not line.startswith("|"):
            promises = False
        elif cells[-2].strip() == "shown by":
            promises = True
        elif promises and not line.startswith("|---"):
            named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", cells[-2])
            assert named, line
            for file, name in named:
                assert f"\ndef {name}(" in (ROOT / "tests" / file).read_text(), line
            count += 1
    assert count >= minimum


def test_mutants_fit_the_sources():
    """Each mutant changes one place, and names a test that is there; docs/trust.md has their number."""
    for mutant in mutation.MUTANTS:
        assert (ROOT / mutant.file).read_text().count(mutant.old) == 1, mutant
        file, _, name = mutant.near.partition("::")
        text = (ROOT / "tests" / (file if file.startswith("test_") else f"cpp/{file}.cpp")).read_text()
        assert not name or f"\ndef {name}(" in text, mutant
    assert f"puts {len(mutation.MUTANTS)} faults into the core" in (ROOT / "docs/trust.md").read_text()

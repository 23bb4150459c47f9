"""Loads the compiled library, or says in one sentence why it cannot be loaded."""

import json
from pathlib import Path
from typing import Any

import torch

PACKAGE = Path(__file__).parent
REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps ."


def read_build_record() -> dict[str, Any]:
    """Returns what the build wrote down: the versions of torch and CUDA, and the CUDA architectures."""
    record = PACKAGE / "build.json"
    if not record.exists() and (PACKAGE.parent / "setup.py").exists():
        raise ImportError(
            f"{PACKAGE.parent} is the source tree of chunked_noise, where nothing is built: leave it to import the "
            "package that is installed, or build here with `pip install --no-build-isolation -e .`"
        )
    if not record.exists():
        raise ImportError(f"chunked_noise in {PACKAGE} is not built: run `{REBUILD}` in its source tree")
    result: dict[str, Any] = json.loads(record.read_text())
    return result


BUILD = read_build_record()

if BUILD["torch"] != torch.__version__:
    raise ImportError(
        f"chunked_noise was built for torch {BUILD['torch']} and torch {torch.__version__} is running: "
        f"run `{REBUILD}` in its source tree"
    )

from . import _C  # noqa: E402  its import registers the operators

library = _C

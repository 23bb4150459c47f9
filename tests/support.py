"""What several test files share."""

import os
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.complex32,
)

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bits as integers: equality of NaN and of zeros of both signs is told apart."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype == torch.bool:
        return tensor.to(torch.int8)
    return tensor.contiguous().view(BITS[tensor.element_size()])


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.device == expected.device
    different = bits(actual) != bits(expected)
    assert not different.any(), f"{int(different.sum())} of {different.numel()} elements differ in their bits"


def run_python(code: str, *args: str, timeout: float = 300, **environment: str) -> str:
    """Runs code in a fresh process, outside the source tree, and returns what it printed."""
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    result = subprocess.run(
        [sys.executable, "-W", "ignore::FutureWarning", "-c", code, *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment},
        cwd=os.path.sep,
    )
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


class Layer(torch.nn.Module):
    """Samples noise and splits into chunks, through the operators, as TorchScript needs it."""

    def forward(self, x: torch.Tensor, seed: int) -> torch.Tensor:
        noise = torch.ops.chunked_noise.sample_chunked_noise(
            x.shape, seed=seed, chunk_size=4, start=0, device=x.device, dtype=x.dtype
        )
        outputs: list[torch.Tensor] = []
        for chunk in torch.ops.chunked_noise.padded_chunks(x + noise, 4):
            outputs.append(torch.cumsum(chunk, 1))
        seed = torch.ops.chunked_noise.derive_chunk_seed(seed, 1)
        return torch.cat(outputs, 1)[:, : x.shape[1]] + (seed % 2)

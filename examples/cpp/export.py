"""Writes the two models that inference.cpp runs: `python export.py FOLDER`."""

import sys
from pathlib import Path

import torch
from torch import Tensor

from chunked_noise import sample_chunked_noise


class Layer(torch.nn.Module):
    """A causal layer with seeded noise, for torch.export and AOTInductor."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns the running sum over the positions of the noisy input."""
        noise = sample_chunked_noise(x.shape, seed=2**64 - 5, chunk_size=16, device=x.device, dtype=x.dtype)
        return torch.cumsum(x + noise, dim=1)


class ScriptedLayer(torch.nn.Module):
    """The same for TorchScript, which calls the operator; its seed is the two's complement of 2**64 - 5."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns the running sum over the positions of the noisy input."""
        noise = torch.ops.chunked_noise.sample_chunked_noise(
            x.shape, seed=-5, chunk_size=16, start=0, device=x.device, dtype=x.dtype
        )
        return torch.cumsum(x + noise, dim=1)


def main(folder: Path) -> None:
    """Writes scripted.pt and package.pt2."""
    torch.jit.script(ScriptedLayer()).save(str(folder / "scripted.pt"))
    length = torch.export.Dim("length", min=1, max=4096)
    exported = torch.export.export(Layer(), (torch.ones(2, 37, 8),), dynamic_shapes=({1: length},))
    torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "package.pt2"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

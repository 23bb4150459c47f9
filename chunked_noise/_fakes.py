"""What a compiler needs to know of operators whose C++ kernels for meta tensors do not tell it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from . import _load  # noqa: F401  the operators must exist


@torch.library.register_fake("chunked_noise::sample_chunked_noise.rows")  # type: ignore[untyped-decorator]
def sample_rows(
    shape: Sequence[int], *, seed: Tensor, chunk_size: int, start: Tensor, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Returns an empty tensor: the device is the argument, not that of the seeds as it would be inferred."""
    if "meta" in (seed.device.type, start.device.type) and device.type != "meta":
        raise ValueError(f"seed and start are on the device meta and have no values, the noise is on {device}")
    # For its checks of the arguments; those of the tensors are made when the program runs.
    torch.ops.chunked_noise.sample_chunked_noise.default(
        shape, seed=0, chunk_size=chunk_size, start=0, device=device, dtype=dtype
    )
    return torch.empty(shape, device=device, dtype=dtype)

from collections.abc import Sequence

import torch
from torch import Tensor

__version__: str

def derive_chunk_seed(seed: int, chunk_index: int) -> int: ...
def sample_plain(
    shape: Sequence[int], seed: int, chunk_size: int, device: torch.device | str, dtype: torch.dtype, start: int
) -> Tensor: ...
def describe_engines() -> list[tuple[str, str]]: ...

"""Prefix-invariant seeded noise for PyTorch: see `sample_chunked_noise`."""

from pathlib import Path as _Path

from . import _fakes as _fakes
from . import reference
from ._config import show_config, warm_up
from ._load import library as _library
from .chunking import PaddedChunk, padded_chunks
from .noise import derive_chunk_seed, gather_chunked_noise, sample_chunked_noise

__all__ = [
    "PaddedChunk",
    "cmake_prefix_path",
    "derive_chunk_seed",
    "gather_chunked_noise",
    "padded_chunks",
    "reference",
    "sample_chunked_noise",
    "show_config",
    "warm_up",
]

__version__ = _library.__version__

#: Where CMake's find_package(ChunkedNoise) looks, as `torch.utils.cmake_prefix_path` is for Torch.
cmake_prefix_path = str(_Path(__file__).parent / "share" / "cmake")

"""Parts drawn by the processes of torch.distributed (gloo), put together: the bits of one process."""

import re
import sys

import pytest
import torch
import torch.distributed as dist
from support import ROOT, assert_same_bits
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode

from chunked_noise import sample_chunked_noise

OPTIONS = {"seed": 2**64 - 5, "chunk_size": 4, "device": "cpu", "dtype": torch.float32}


def documented_recipe():
    """The function noise_like(x, **options) of the guide, as a reader would copy it."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/modes.md").read_text(), re.DOTALL)
    namespace = {}
    exec(next(block for block in blocks if "def noise_like" in block), namespace)
    return namespace["noise_like"]


def gathered(part, dim):
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, part)
    return torch.cat(parts, dim)


def context_parallel(rank, world):
    """Each rank draws its window; windows need not be equal, nor end with a chunk, nor hold a position."""
    for length in (23, 4 * world, 1):
        whole = sample_chunked_noise((2, length, 3), **OPTIONS)
        begin, end = length * rank // world, length * (rank + 1) // world
        window = sample_chunked_noise((2, end - begin, 3), start=begin, **OPTIONS)
        assert_same_bits(gathered(window, 1), whole)


def data_parallel(rank, world):
    """Each rank draws its rows, with one seed for all or with a seed for each."""
    batch, seeds, starts = 7, torch.arange(7) - 3, 5 * torch.arange(7)
    rows = slice(batch * rank // world, batch * (rank + 1) // world)
    count = rows.stop - rows.start
    assert_same_bits(
        gathered(sample_chunked_noise((count, 9, 3), **OPTIONS), 0), sample_chunked_noise((batch, 9, 3), **OPTIONS)
    )
    part = sample_chunked_noise((count, 9, 3), **{**OPTIONS, "seed": seeds[rows]}, start=starts[rows])
    assert_same_bits(gathered(part, 0), sample_chunked_noise((batch, 9, 3), **{**OPTIONS, "seed": seeds}, start=starts))


def dtensor(rank, world):
    noise_like = documented_recipe()
    mesh = init_device_mesh("cpu", (world,))
    meshes = [(mesh, [placement]) for placement in (Shard(1), Shard(0), Shard(2), Replicate())]
    mesh = init_device_mesh("cpu", (1, world))
    meshes += [(mesh, [Shard(0), Shard(1)]), (mesh, [Shard(1), Shard(1)]), (mesh, [Replicate(), Shard(1)])]
    for shape in ((2, 23, 4), (5, 4 * world, 3), (2, 1, 3)):  # some shards are empty
        for mesh, placements in meshes:
            x = distribute_tensor(torch.ones(shape), mesh, placements)
            with CommDebugMode() as communication:
                noise = noise_like(x, seed=OPTIONS["seed"], chunk_size=4)
                noisy = x + noise
            assert communication.get_total_counts() == 0
            assert noise.placements == x.placements
            whole = sample_chunked_noise(shape, **OPTIONS)
            assert_same_bits(noise.full_tensor(), whole.contiguous())
            assert_same_bits(noisy.full_tensor(), 1 + whole)
    with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
        x + sample_chunked_noise(x.shape, **OPTIONS)


def work(rank, world, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    try:
        for part in (context_parallel, data_parallel, dtensor):
            part(rank, world)
        dist.barrier()  # no process takes its connections away from one that still works
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(sys.platform != "linux", reason="gloo")
@pytest.mark.parametrize("world", [2, 3])
def test_processes_draw_their_parts(world, tmp_path):
    torch.multiprocessing.spawn(work, (world, str(tmp_path)), nprocs=world)

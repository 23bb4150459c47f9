"""What was built, what is running, and which engine serves which dtype."""

import torch

from ._load import BUILD, library


def show_config() -> str:
    """Returns a readable description of the build and of the engines, one fact a line.

    The CPU kernels are compared with ATen's draws, once a process and dtype, before this tells what serves a dtype.

    Example:
        >>> print(show_config().splitlines()[0].split()[0])
        chunked_noise
    """
    lines = [
        f"chunked_noise {library.__version__}",
        f"torch built for: {BUILD['torch']}, running: {torch.__version__}",
        f"CUDA engine: {'CUDA {cuda}, {cuda_archs}'.format(**BUILD) if BUILD['cuda'] else 'not built'}",
        f"CPU capability: {torch.backends.cpu.get_cpu_capability()}, threads: {torch.get_num_threads()}",
        "engines:",
    ]
    lines += [f"  {what:20} {engine}" for what, engine in library.describe_engines()]
    return "\n".join(lines)


def warm_up(device: torch.device | str) -> None:
    """Compares the fast engine of a device with ATen now, for every dtype, as its first use would do by itself.

    Call it before capturing a CUDA graph, which does not allow the comparison, or to take the cost (tens of
    milliseconds) out of the first request. It changes no values and does nothing where `aten` draws.

    Args:
        device: A device, or a string that names one.

    Raises:
        RuntimeError: If the device is not there.

    Example:
        >>> warm_up("cpu")
    """
    device = torch.device(device)
    torch.ops.chunked_noise.sample_chunked_noise.default(  # nothing, which a device that is not there refuses
        [1, 0], seed=0, chunk_size=1, start=0, device=device, dtype=torch.float32
    )
    library.warm_up(str(device))

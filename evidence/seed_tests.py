"""The tests of the seeds: do the 64 bits of `derive_chunk_seed` look random, and when do two of them meet?"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from results import Result, chi_square_p, normal_p, sum_of_squares_p, two_sided
from scipy import stats
from sources import Seeds, Source, derive_chunk_seeds

ROOT = Path(__file__).parent.parent
LOW = np.uint64(2**32 - 1)
FIXED = np.uint64(7)


def bits(words: Seeds) -> NDArray[np.uint8]:
    """Of shape (64, n), the lowest bit first."""
    octets = words.astype("<u8").view(np.uint8).reshape(-1, 8)
    return np.unpackbits(octets, axis=1, bitorder="little").T


def stream_tests(name: str, words: Seeds) -> Iterator[Result]:
    """The tests of the program ENT and a few of its class (J. Walker, "ENT", 2008), on consecutive seeds."""
    n = words.size
    ones = bits(words).sum(1, dtype=np.int64)
    yield Result("seeds: bits", f"{name}: ones in each of 64 bits", sum_of_squares_p((2 * ones - n) / n**0.5))

    octets = words.view(np.uint8).reshape(n, 8)
    statistic = sum(float(np.square(np.bincount(o, minlength=256) - n / 256).sum()) for o in octets.T) / (n / 256)
    yield Result("seeds: bits", f"{name}: values of each of 8 bytes", chi_square_p(statistic, 8 * 255))

    flips = bits(words[1:] ^ words[:-1]).sum(1, dtype=np.int64)
    yield Result("seeds: steps", f"{name}: each bit's changes", sum_of_squares_p((2 * flips - n + 1) / (n - 1) ** 0.5))
    counts = np.bincount(bits(words[1:] ^ words[:-1]).sum(0), minlength=65)
    expected = stats.binom(64, 0.5).pmf(np.arange(65)) * (n - 1)
    common = expected >= 10
    counts = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    statistic = float((np.square(counts - expected) / expected).sum())
    yield Result("seeds: steps", f"{name}: bits changed at once", chi_square_p(statistic, len(counts) - 1))

    for half, values in (("high", words >> np.uint64(32)), ("low", words & LOW)):
        centred = (values / 2**32 - 0.5) * 12**0.5
        z = [float(centred[d:] @ centred[:-d]) / (n - d) ** 0.5 for d in range(1, 17)]
        yield Result("seeds: steps", f"{name}: {half} half, correlation at lags 1 to 16", sum_of_squares_p(np.array(z)))
        yield Result("seeds: birthday spacings", f"{name}: {half} half", birthday_spacings_p(values))


def poisson_p(observed: int, expected: float) -> float:
    """Of a number of rare events."""
    law = stats.poisson(expected)
    return two_sided(law.cdf(observed), law.sf(observed - 1))


def birthday_spacings_p(values: Seeds) -> float:
    """Of the repeated spacings among 4096 birthdays in a year of 2^32 days, in each block of a stream.

    Their number is Poisson with mean 4096^3 / 2^34 = 4: G. Marsaglia, W. W. Tsang, "Some difficult-to-pass tests of
    randomness", J. Stat. Software 7(3), 2002.
    """
    spacings = np.sort(np.diff(np.sort(values.reshape(-1, 4096))))
    repeated = int((spacings[:, 1:] == spacings[:, :-1]).sum())
    return poisson_p(repeated, 4 * len(spacings))


def seed_tests(source: Source, n: int, first: int) -> list[Result]:
    """The tests of a source's seeds that need no battery, from seed and chunk `first` on."""
    assert source.chunk_seeds is not None
    fixed = FIXED + np.uint64(first)
    count = np.arange(first, first + 4 * n, dtype=np.uint64)
    side = count[: int((4 * n) ** 0.5)]
    over_seeds = source.chunk_seeds(count, fixed)
    found = [
        *stream_tests("over chunks", source.chunk_seeds(fixed, count[:n])),
        *stream_tests("over seeds", over_seeds[:n]),
    ]
    for name, seeds, inside in (
        ("one chunk of each seed", over_seeds, 0.0),
        ("square of seeds and chunks", source.chunk_seeds(side[:, None], side), side.size * pairs(side.size)),
    ):
        # Pairs inside a sequence are not counted among the expected ones: they cannot be equal in our derivation.
        for part, values, possible in (("low halves", seeds & LOW, 2**32), ("whole seeds", seeds, 2**64)):
            p = poisson_p(equal_pairs(values), (pairs(seeds.size) - inside) / possible)
            found.append(Result("seeds: equal pairs", f"{name}, {part}", p))
    return [*found, *avalanche(source, n // 64, first)[1]]


def pairs(n: int) -> float:
    """How many pairs n things have."""
    return n * (n - 1) / 2


def equal_pairs(words: Seeds) -> int:
    """How many pairs are equal."""
    repeats = np.unique(words, return_counts=True)[1]
    return int((repeats * (repeats - 1) // 2).sum())


def avalanche(source: Source, n: int, entropy: int) -> tuple[NDArray[np.float64], list[Result]]:
    """How often each output bit changes with each input bit: 64 of the chunk index, then 64 of the seed."""
    assert source.chunk_seeds is not None
    seeds, chunks = np.random.default_rng(entropy).integers(0, 2**64, (2, n), dtype=np.uint64)
    before = source.chunk_seeds(seeds, chunks)
    flips = np.uint64(1) << np.arange(64, dtype=np.uint64)
    after = [source.chunk_seeds(seeds, chunks ^ flip) for flip in flips]
    after += [source.chunk_seeds(seeds ^ flip, chunks) for flip in flips]
    changes = np.array([bits(before ^ words).sum(1, dtype=np.int64) for words in after])
    z = (2 * changes - n) / n**0.5
    return changes / n, [
        Result("seeds: avalanche", "8192 frequencies", sum_of_squares_p(z)),
        Result("seeds: avalanche", "largest bias of 8192", min(1.0, z.size * normal_p(float(np.abs(z).max())))),
    ]


@dataclass(frozen=True)
class Repeats:
    """Equal low halves among n, where a random 32-bit function has `expected`."""

    n: int
    expected: float
    within: int  # one seed, n chunks
    across: int  # one chunk, n seeds

    @property
    def across_p(self) -> float:
        """Of the number across seeds."""
        return poisson_p(self.across, self.expected)


def measure_repeats(largest: int) -> list[Repeats]:
    """Counts them for n = 2^10, 2^11, ..., largest."""
    count = np.arange(largest, dtype=np.uint64)
    within, across = (derive_chunk_seeds(*pair) & LOW for pair in ((FIXED, count), (count, FIXED)))
    sizes = [2**k for k in range(10, largest.bit_length())]
    return [Repeats(n, pairs(n) / 2**32, equal_pairs(within[:n]), equal_pairs(across[:n])) for n in sizes]


STREAMS = [(over, part) for over in ("chunks", "seeds") for part in ("high", "low", "both", "reversed")]


def build_testu01(folder: Path) -> Path | None:
    """Compiles testu01.cpp; None where TestU01 or a compiler is missing."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        return None
    program = folder / "testu01"
    source = Path(__file__).with_name("testu01.cpp")
    libraries = ["-ltestu01", "-ltestu01probdist", "-ltestu01mylib", "-lm"]
    command = [compiler, "-O2", "-std=c++17", f"-I{ROOT}/csrc/include", str(source), "-o", str(program), *libraries]
    return program if subprocess.run(command, capture_output=True).returncode == 0 else None


def run_testu01(streams: list[tuple[str, str]], first: int) -> Iterator[tuple[str, list[Result]]]:
    """Runs SmallCrush on the streams, from seed and chunk `first` on; gives nothing where TestU01 is missing."""
    with tempfile.TemporaryDirectory() as folder:
        program = build_testu01(Path(folder))
        if program is None:
            return
        for over, part in streams:
            run = subprocess.run(
                [program, over, part, "SmallCrush", str(first)], capture_output=True, text=True, check=True
            )
            lines = [line.split(maxsplit=2) for line in run.stdout.splitlines() if line.startswith("p ")]
            name = f"over {over}, {part}"
            found = [(f"{name}: {test}", float(p)) for _, p, test in lines]
            yield name, [Result("seeds: TestU01", test, two_sided(p, 1 - p)) for test, p in found]

"""The tests of noise. Each asks one question, and gives the probability of an answer as odd as the one it got."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from results import (
    Result,
    anderson_darling_p,
    chi_square_p,
    count_p,
    kolmogorov_smirnov_p,
    normal_p,
    sum_of_squares_p,
    two_sided,
)
from scipy import special
from sources import FEATURES, POSITIONS, Source, name_of
from torch import Tensor

Array = NDArray[np.float64]

# Digits of the significand, and the smallest spacing, of types that are coarse enough for a test to see it.
COARSE = {torch.float16: (11, 2.0**-24), torch.bfloat16: (8, 2.0**-133)}
BINS_PER_SIGMA = 16
SIGMAS = 5


@dataclass(frozen=True)
class Size:
    """Neighbouring seeds of `chunks` chunks each for counts; the first `square` chunks of each for all else."""

    square: int  # the number of seeds too, so that every (a, b) has its (b, a)
    chunks: int

    @property
    def counted(self) -> int:
        """Values in the counts."""
        return self.square * self.chunks * POSITIONS * FEATURES

    @property
    def kept(self) -> int:
        """Values in all else."""
        return self.square**2 * POSITIONS * FEATURES


@dataclass
class Sample:
    """What the tests need of a source's noise in one dtype."""

    dtype: torch.dtype
    total: int
    edges: Array
    histogram: NDArray[np.int64]
    powers: Array  # means of x, x^2, x^3, x^4
    largest: float
    noise: Array  # (seeds, chunks, positions, features)
    spectrum: Array = field(default_factory=lambda: np.empty(0))

    @property
    def expected(self) -> Array:
        """The histogram of normal numbers."""
        return self.total * np.diff(special.ndtr(np.concatenate(([-np.inf], self.edges, [np.inf]))))

    def beyond(self, sigmas: int) -> tuple[int, float]:
        """How many of |x| exceed `sigmas`, and the probability that one does."""
        k = (SIGMAS - sigmas) * BINS_PER_SIGMA + 1
        return int(self.histogram[:k].sum() + self.histogram[-k:].sum()), float(2 * special.ndtr(self.edges[k - 1]))


def spacing(x: Array, dtype: torch.dtype) -> tuple[Array, NDArray[np.bool_]]:
    """The distance from |x| to the next larger number of the type, and where the next smaller one is half as far."""
    digits, smallest = COARSE[dtype]
    fraction, exponent = np.frexp(x)
    gap = np.maximum(np.ldexp(1.0, exponent - digits), smallest)
    return np.where(x == 0, smallest, gap), (np.abs(fraction) == 0.5) & (gap > smallest)


def bin_edges(dtype: torch.dtype) -> Array:
    """Every 1/16 sigma; in a coarse type the middle between that number, which it has, and the next one outwards.

    A normal number rounds to one beyond k sigma exactly if it is beyond that middle.
    """
    edges = np.arange(-SIGMAS * BINS_PER_SIGMA, SIGMAS * BINS_PER_SIGMA + 1) / BINS_PER_SIGMA
    return edges + np.sign(edges) * spacing(edges, dtype)[0] / 2 if dtype in COARSE else edges


def take_sample(source: Source, dtype: torch.dtype, size: Size, first_seed: int) -> Sample:
    """Draws, counts, and keeps the part that is looked at closely."""
    edges = torch.from_numpy(bin_edges(dtype))
    histogram = torch.zeros(len(edges) + 1, dtype=torch.int64)
    powers = torch.zeros(4, dtype=torch.float64)
    largest = 0.0
    kept: list[Tensor] = []
    for seed in range(first_seed, first_seed + size.square):
        noise = source.draw(seed, size.chunks, dtype).double()
        kept.append(noise[: size.square].clone())
        flat = noise.flatten()
        histogram += torch.bincount(torch.bucketize(flat, edges), minlength=len(histogram))
        largest = max(largest, -float(flat.min()), float(flat.max()))
        square = flat.square()
        powers += torch.stack([flat.sum(), square.sum(), flat @ square, square @ square])
    powers /= size.counted
    noise = torch.stack(kept).numpy()
    return Sample(dtype, size.counted, edges.numpy(), histogram.numpy(), powers.numpy(), largest, noise)


def uniforms(x: Array, dtype: torch.dtype) -> Array:
    """Maps x by the normal distribution function, sorted: uniform on [0, 1] if and only if x is normal.

    A rounded normal number stands for the interval that rounds to it, and a uniform number in the interval's image is
    drawn for it (the randomised probability integral transform; T. S. Ferguson, "Mathematical Statistics", 1967, 5.3):
    exactly uniform if x is a normal number rounded to nearest, so that the same tests serve half precision.
    """
    if dtype not in COARSE:
        return np.sort(special.ndtr(x.ravel()))
    magnitude = np.abs(x.ravel())
    gap, power_of_two = spacing(magnitude, dtype)
    outer = special.ndtr(-(magnitude + gap / 2))
    inner = special.ndtr(-(magnitude - np.where(power_of_two, gap / 4, gap / 2)))
    u = outer + (inner - outer) * np.random.default_rng(0).random(magnitude.size)
    return np.sort(np.where(x.ravel() < 0, u, 1 - u))


def law(sample: Sample, size: Size) -> Iterator[Result]:
    """Is a value standard normal?"""
    n, mean = sample.total, sample.powers
    for name, excess, variance in (
        ("mean", mean[0], 1),
        ("variance", mean[1] - 1, 2),
        ("third moment", mean[2], 15),
        ("fourth moment", mean[3] - 3, 96),
    ):
        yield Result("moments", name, normal_p(float(excess) * (n / variance) ** 0.5))

    rare = int((sample.expected[: len(sample.expected) // 2] < 10).sum())  # bins too rare for the limit law, joined
    counts, expected = (
        np.concatenate(([a[: rare + 1].sum()], a[rare + 1 : -rare - 1], [a[-rare - 1 :].sum()]))
        for a in (sample.histogram, sample.expected)
    )
    statistic = float((np.square(counts - expected) / expected).sum())
    yield Result("chi-square", f"{len(counts)} bins", chi_square_p(statistic, len(counts) - 1))

    for sigmas in range(1, SIGMAS + 1):
        observed, probability = sample.beyond(sigmas)
        yield Result("tails", f"beyond {sigmas} sigma", count_p(observed, n, probability))

    u = uniforms(sample.noise, sample.dtype)
    yield Result("Kolmogorov-Smirnov", "values", kolmogorov_smirnov_p(u))
    yield Result("Anderson-Darling", "values", anderson_darling_p(u))

    chunks = sample.noise.reshape(size.square**2, -1)
    width = chunks.shape[1]
    means = np.sort(special.ndtr(chunks.sum(1) / width**0.5))
    energies = np.sort(special.chdtr(width, np.square(chunks).sum(1)))
    yield Result("Kolmogorov-Smirnov", "means of chunks", kolmogorov_smirnov_p(means))
    yield Result("Anderson-Darling", "means of chunks", anderson_darling_p(means))
    yield Result("Kolmogorov-Smirnov", "energies of chunks", kolmogorov_smirnov_p(energies))
    yield Result("Anderson-Darling", "energies of chunks", anderson_darling_p(energies))
    yield Result("moments", "means of places in a chunk", sum_of_squares_p(chunks.sum(0) / size.square))


def correlation_z(a: Array, b: Array) -> float:
    """Standard normal, nearly, if a and b are independent and have mean 0 and variance 1."""
    return float(np.einsum("i,i", a.ravel(), b.ravel()) / a.size**0.5)


def lagged_p(lags: range, pair: Callable[[int], tuple[Array, Array]]) -> float:
    """One p-value for the correlations at several lags."""
    return sum_of_squares_p(np.array([correlation_z(*pair(lag)) for lag in lags]))


def largest_cosine_p(gram: Array, width: int) -> float:
    """Of the largest cosine between any two of many normal vectors, by Bonferroni's inequality over the pairs.

    The square of the cosine of two independent ones has the law Beta(1/2, (width - 1)/2).
    """
    lengths = np.sqrt(np.diagonal(gram))
    cosines = np.abs(gram / lengths[:, None] / lengths)
    np.fill_diagonal(cosines, 0)
    pairs = len(gram) * (len(gram) - 1) / 2
    largest = min(float(cosines.max()), 1.0)
    return min(1.0, pairs * float(special.betainc((width - 1) / 2, 0.5, 1 - largest**2)))


def correlations(sample: Sample, size: Size) -> Iterator[Result]:
    """Does a value tell anything about another one?"""
    x = sample.noise
    sequence = x.reshape(size.square, -1, FEATURES)
    lags = range(1, POSITIONS + 2)
    p = lagged_p(lags, lambda d: (sequence[:, d:], sequence[:, :-d]))
    yield Result("positions", f"lags 1 to {lags[-1]}", p)
    yield Result("positions", "across a chunk's end", normal_p(correlation_z(x[:, 1:, 0], x[:, :-1, -1])))

    flat = x.reshape(-1, FEATURES)
    pairs = (flat.T @ flat)[np.triu_indices(FEATURES, 1)] / len(flat) ** 0.5
    yield Result("features", "all pairs", sum_of_squares_p(pairs))

    squares = (np.square(x) - 1) / 2**0.5
    near = range(1, 9)
    for what, y in (("values", x), ("squares", squares)):
        yield Result("chunks", f"{what}, lags 1 to 8", lagged_p(near, lambda d, y=y: (y[:, d:], y[:, :-d])))
        yield Result("seeds", f"{what}, lags 1 to 8", lagged_p(near, lambda d, y=y: (y[d:], y[:-d])))
        yield Result(
            "seed/chunk swaps",
            f"{what}, D(a + d, b) and D(a, b + d), d = 1 to 8",
            lagged_p(near, lambda d, y=y: (y[d:, :-d], y[:-d, d:])),
        )
        a, b = np.triu_indices(size.square, 1)
        yield Result("seed/chunk swaps", f"{what}, D(a, b) and D(b, a)", normal_p(correlation_z(y[a, b], y[b, a])))

    chunks = x.reshape(size.square**2, -1).astype(np.float32)
    yield Result("all pairs of chunks", "largest cosine", largest_cosine_p(chunks @ chunks.T, chunks.shape[1]))


def periodicity(sample: Sample, size: Size) -> Iterator[Result]:
    """Does anything recur? The periodogram of white noise is exponential and the same at all frequencies.

    The largest ordinate: R. A. Fisher, "Tests of significance in harmonic analysis", 1929, with a known variance.
    """
    width = POSITIONS * FEATURES
    values = sample.noise.ravel()
    power = np.square(np.abs(np.fft.rfft(values)))[1:-1] / values.size
    yield Result("periodicity", "largest ordinate", float(-np.expm1(power.size * np.log1p(-np.exp(-power.max())))))
    yield Result("periodicity", "Kolmogorov-Smirnov of the ordinates", kolmogorov_smirnov_p(np.sort(-np.expm1(-power))))
    for name, period in (("chunk", width), ("sequence", width * size.square)):
        step = values.size // period
        harmonics = power[step - 1 :: step]
        yield Result("periodicity", f"harmonics of the {name}", gamma_p(float(harmonics.sum()), harmonics.size))

    # Over positions, the mean over seeds and features: what a model sees along the sequence.
    series = sample.noise.reshape(size.square, -1, FEATURES)
    length = series.shape[1]
    sample.spectrum = (np.square(np.abs(np.fft.rfft(series, axis=1)))[:, 1:-1] / length).mean((0, 2))
    harmonics = sample.spectrum[size.square - 1 :: size.square]  # a chunk's period is 1/square of the length
    count = size.square * FEATURES
    p = gamma_p(float(harmonics.sum()) * count, harmonics.size * count)
    yield Result("periodicity", "harmonics of the chunk, over positions", p)


def gamma_p(total: float, count: int) -> float:
    """Of the sum of `count` independent exponential numbers."""
    return two_sided(float(special.gammainc(count, total)), float(special.gammaincc(count, total)))


def noise_tests(source: Source, dtype: torch.dtype, size: Size, first_seed: int) -> tuple[Sample, list[Result]]:
    """All tests of a source in one dtype, on its seeds from `first_seed` on."""
    sample = take_sample(source, dtype, size, first_seed)
    kind = name_of(dtype)
    found = [result for ask in (law, correlations, periodicity) for result in ask(sample, size)]
    return sample, [Result(result.group, f"{kind}: {result.name}", result.p) for result in found]

"""The pictures of the report."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from noise_tests import SIGMAS, Sample, Size
from numpy.typing import NDArray
from results import ALPHA, Result
from scipy import stats
from seed_tests import Repeats
from sources import OURS, PLAIN, POSITIONS, SAME, SOURCES, SUM, name_of

mpl.use("agg")
import matplotlib.pyplot as plt

COLOURS = {OURS.name: "tab:blue", PLAIN.name: "0.55", SUM.name: "tab:orange", SAME.name: "tab:red"}
plt.rcParams.update(
    {
        "figure.dpi": 100,
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)


def save(figure: plt.Figure, path: Path) -> None:
    """Without a date or a version in it, so that the same picture is the same file."""
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def draw_law(samples: dict[torch.dtype, Sample], path: Path) -> None:
    """The density of our noise, and its tails against what a normal law has."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    grid = np.linspace(-5, 5, 401)
    left.semilogy(grid, stats.norm.pdf(grid), color="0.2", lw=1, label="normal law")
    for offset, (dtype, sample) in enumerate(samples.items()):
        counts = sample.histogram[1:-1]
        middle = (sample.edges[1:] + sample.edges[:-1]) / 2
        density = np.where(counts > 0, counts / np.diff(sample.edges) / sample.total, np.nan)
        left.semilogy(middle[offset::4], density[offset::4], "o", ms=3, color=f"C{offset}", label=name_of(dtype))
    left.set(title=f"Density of {sample.total:,} values each", xlabel="sigma", ylim=(1e-7, 1))
    left.legend()

    sigmas = np.arange(1, SIGMAS + 1)
    for offset, (dtype, sample) in enumerate(samples.items()):
        observed, probability = np.array([sample.beyond(int(k)) for k in sigmas]).T
        expected = probability * sample.total
        low, high = stats.poisson(expected).interval(0.95)
        place = sigmas + (offset - 1.5) * 0.13
        right.vlines(place, low / expected, high / expected, color="0.8", lw=5)
        right.plot(place, observed / expected, "o", ms=4, color=f"C{offset}", label=name_of(dtype))
    right.axhline(1, color="0.2", lw=0.8)
    right.set(title="Values beyond k sigma: observed / expected", xlabel="k", xticks=sigmas)
    right.annotate("grey: 95 % of chance", (0.03, 0.06), xycoords="axes fraction", color="0.45")
    save(figure, path)


def draw_chunks(samples: dict[str, Sample], path: Path) -> None:
    """The cosine of any two chunks, of 8 seeds and 8 chunks each."""
    names = (OURS.name, SUM.name, SAME.name)
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.5), layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        chunks = samples[name].noise[:8, :8].reshape(64, -1)
        chunks = chunks / np.linalg.norm(chunks, axis=1, keepdims=True)
        picture = axis.imshow(np.abs(chunks @ chunks.T), vmin=0, vmax=1, cmap="magma_r", interpolation="nearest")
        axis.set(title=name, xticks=range(0, 64, 8), yticks=range(0, 64, 8))
        axis.set_xticklabels(range(8))
        axis.set_yticklabels(range(8))
        axis.set_xlabel("seed (8 chunks of each)")
        axis.spines[:].set_visible(True)
    axes[0].set_ylabel("seed")
    figure.colorbar(picture, ax=axes, shrink=0.8, label="|cosine| of two chunks")
    save(figure, path)


def draw_spectrum(samples: dict[str, Sample], size: Size, path: Path) -> None:
    """The mean periodogram along the sequence."""
    names = (OURS.name, PLAIN.name, SUM.name, SAME.name)
    figure, axes = plt.subplots(4, 1, figsize=(9.5, 5.4), sharex=True, layout="constrained")
    series = samples[OURS.name].noise[..., 0, :].shape[0] * samples[OURS.name].noise.shape[-1]
    low, high = stats.gamma(series).interval(0.999)
    for axis, name in zip(axes, names, strict=True):
        power = samples[name].spectrum
        cycles = np.arange(1, len(power) + 1) / size.square
        axis.axhspan(low / series, high / series, color="0.88")
        axis.semilogy(cycles, power, color=COLOURS[name], lw=0.9)
        limits, ticks = ((0.02, 500), [0.1, 1, 10, 100]) if power.max() > 2 else ((0.7, 1.43), [0.75, 1, 1.33])
        axis.set(ylim=limits)
        axis.set_yticks(ticks, map(str, ticks))
        axis.minorticks_off()
        axis.set_title(name, loc="left")
    axes[-1].set(xlabel="cycles per chunk", xlim=(0, POSITIONS / 2))
    figure.supylabel("power (white noise: 1; grey: 99.9 % of chance)", fontsize=9)
    save(figure, path)


def draw_p_values(results: dict[str, list[Result]], path: Path) -> None:
    """All p-values in order, and the line that Holm's correction draws."""
    figure, axis = plt.subplots(figsize=(9.5, 3.8), layout="constrained")
    floor = 1e-30
    for source in SOURCES:
        p = np.sort([result.p for result in results[source.name]])
        place = np.arange(1, len(p) + 1) / (len(p) + 1)
        axis.loglog(place, np.maximum(p, floor), ".", ms=5, color=COLOURS[source.name], label=source.name)
    ours = len(results[OURS.name])
    place = np.arange(1, ours + 1) / (ours + 1)
    axis.loglog(place, place, color="0.2", lw=0.8, label="as chance has it")
    axis.loglog(place, ALPHA / np.arange(ours, 0, -1), "--", color="0.2", lw=1, label="Holm: reject below")
    axis.set(xlabel="rank of the test / number of tests", ylabel="p-value", ylim=(floor / 3, 3))
    axis.set_title("P-values in order (smaller than 1e-30 drawn there)")
    axis.legend(loc="center left", bbox_to_anchor=(0.04, 0.42))
    save(figure, path)


def draw_seeds(changes: NDArray[np.float64], samples: int, repeats: list[Repeats], path: Path) -> None:
    """Which output bits an input bit changes, and how many derived seeds have equal low halves."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained", width_ratios=(1.25, 1))
    reach = 2.5 / samples**0.5  # 5 standard deviations
    picture = left.imshow(
        changes.T, "RdBu", vmin=0.5 - reach, vmax=0.5 + reach, origin="lower", interpolation="nearest", aspect="auto"
    )
    left.set(title="How often a bit changes", xlabel="input bit (chunk index, then seed)", ylabel="output bit")
    left.set_xticks([0, 32, 64, 96, 127], ["0", "32", "0", "32", "63"])
    left.axvline(63.5, color="0.2", lw=0.8)
    figure.colorbar(picture, ax=left, label="share of changes (ideal: 0.5)")

    n = np.array([r.n for r in repeats])
    right.plot(n, [r.expected for r in repeats], color="0.2", lw=1, label="expected of chance, n²/2³³")
    right.plot(n, [r.across for r in repeats], "o", ms=4, color="tab:green", label="n seeds, one chunk")
    right.plot(n, [r.within for r in repeats], "s", ms=4, color="tab:blue", label="one seed, n chunks: none")
    right.set_xscale("log", base=2)
    right.set_yscale("symlog", linthresh=1)
    right.set(title="Pairs of equal low halves", xlabel="n", ylim=(-0.3, None))
    right.legend()
    save(figure, path)

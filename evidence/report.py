"""Writes the report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from noise_tests import SIGMAS, Size
from results import ALPHA, Result
from scipy import stats
from seed_tests import STREAMS, Repeats
from sources import DTYPES, FEATURES, OURS, POSITIONS, name_of

if TYPE_CHECKING:
    from noise_quality import Evidence

QUESTIONS = {
    "moments": "Are the mean, the variance and the third and fourth moments 0, 1, 0, 3? Has each place in a chunk mean 0?",
    "chi-square": "Do the bins of 1/16 sigma hold what the normal law puts there? In half precision their borders lie "
    "half-way between representable numbers.",
    "tails": "Do as many values lie beyond 1, 2, 3, 4, 5 sigma?",
    "Kolmogorov-Smirnov": "How far is the distribution of the values, of the chunks' means and of the chunks' energies "
    "(sums of squares) from its law, at the widest place?",
    "Anderson-Darling": "The same, with a weight on the tails.",
    "positions": "Correlation of a feature with itself at later positions, and across the end of a chunk.",
    "features": "Correlation of all pairs of features at one position.",
    "chunks": "Correlation of a place with the same place in the next 8 chunks, of values and of squares.",
    "seeds": "Correlation of a place with the same place under the next 8 seeds.",
    "seed/chunk swaps": "Is chunk b of seed a like chunk a of seed b, or chunk b of seed a + d like chunk b + d of seed a?",
    "all pairs of chunks": "Are any two chunks, of any seeds, alike?",
    "periodicity": "Does the spectrum (periodogram) have a peak, is it flat, and what does it hold at the period of a "
    "chunk and of a sequence?",
    "seeds: bits": "Are the 64 bits of the derived seeds, and the 8 bytes, even?",
    "seeds: steps": "Which bits change from one seed to the next, and are the halves correlated?",
    "seeds: birthday spacings": "Do the spacings of sorted halves repeat as often as chance has it?",
    "seeds: equal pairs": "Do the derived seeds of different seeds meet as often as random numbers?",
    "seeds: avalanche": "Does each of the 128 input bits change each of the 64 output bits half of the time?",
    "seeds: TestU01": "SmallCrush: 15 statistics on 8 streams of derived seeds.",
}


def number(p: float) -> str:
    """A p-value in a table."""
    return f"{p:.2g}" if p >= 1e-300 else "< 1e-300"


def table(head: list[str], rows: list[list[str]]) -> str:
    """In Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def cell(evidence: Evidence, group: str) -> str:
    """The smallest p-value of a group, and how many of its tests failed."""
    results = [result for result in evidence.results if result.group == group]
    if not results:
        return "-"
    failed = sum(result.group == group for result in evidence.rejected)
    smallest = number(min(result.p for result in results))
    return f"{smallest}, **{failed}/{len(results)} fail**" if failed else f"{smallest}, 0/{len(results)}"


def details(evidence: list[Evidence], with_group: bool, keep: list[str]) -> str:
    """All p-values of some groups."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for one in evidence:
        for result in one.results:
            if result.group in keep:
                found.setdefault((result.group, result.name), {})[one.source.name] = result.p
    names = [one.source.name for one in evidence]
    rows = [
        [*([group] if with_group else []), name, *(number(p[n]) if n in p else "-" for n in names)]
        for (group, name), p in found.items()
    ]
    return table([*(["row"] if with_group else []), "test", *names], rows)


def second_look(evidence: Evidence) -> str:
    """What became of the rejected tests of a source."""
    if not evidence.rejected:
        return f"No test rejects `{evidence.source.name}`."
    if len(evidence.rejected) > 20:
        return (
            f"`{evidence.source.name}`: {len(evidence.rejected)} of {len(evidence.results)} tests reject it, and "
            f"{len(evidence.confirmed)} of these again on fresh data."
        )
    again = {(result.group, result.name): result.p for result in evidence.repeated}
    rows = [[f"{r.group}, {r.name}", number(r.p), number(again[r.group, r.name])] for r in evidence.rejected]
    return (
        f"`{evidence.source.name}`: {len(rows)} of {len(evidence.results)} tests reject it at first, and "
        f"{len(evidence.confirmed)} of these on fresh data.\n\n" + table(["test", "p", "p on fresh data"], rows)
    )


def share_of_rounded(dtype: torch.dtype, numbers: int) -> float:
    """How many of torch's draws of a type are its float32 draws rounded."""
    first, second = (
        torch.randn(numbers, generator=torch.Generator().manual_seed(0), dtype=d) for d in (dtype, torch.float32)
    )
    return float((first == second.to(dtype)).double().mean())


def tails(ours: Evidence) -> str:
    """Counts beyond k sigma."""
    rows = []
    for sigmas in range(1, SIGMAS + 1):
        counts = [sample.beyond(sigmas) for sample in ours.samples.values()]
        total = next(iter(ours.samples.values())).total
        exact = 2 * stats.norm.sf(sigmas) * total
        rows.append(
            [str(sigmas), f"{exact:,.1f}", *(f"{n:,} ({(n / total - p) / (p / total) ** 0.5:+.1f})" for n, p in counts)]
        )
    rows.append(["largest", "", *(f"{sample.largest:.2f}" for sample in ours.samples.values())])
    return table(["beyond k sigma", "expected", *map(name_of, ours.samples)], rows)


def write_report(evidence: list[Evidence], size: Size, n: int, repeats: list[Repeats], quick: bool, path: Path) -> None:
    """Writes statistics.md."""
    ours = next(one for one in evidence if one.source is OURS)
    names = [one.source.name for one in evidence]
    groups = [group for group in QUESTIONS if any(result.group == group for one in evidence for result in one.results)]
    of_noise = [group for group in groups if not group.startswith("seeds: ")]
    of_seeds = [group for group in groups if group.startswith("seeds: ") and group != "seeds: TestU01"]
    with_battery = "seeds: TestU01" in groups
    rounded = min(share_of_rounded(dtype, POSITIONS * FEATURES) for dtype in (torch.float16, torch.bfloat16))
    noticed = math.ceil((2**33 * math.log(1 / ALPHA)) ** 0.5)

    summary = table(
        ["smallest p-value, tests that fail", *names],
        [[f"{group}", *(cell(one, group) for one in evidence)] for group in groups]
        + [
            ["**all**", *(f"{len(one.rejected)}/{len(one.results)} fail" for one in evidence)],
            ["**again on fresh data**", *(f"{len(one.confirmed)}/{len(one.repeated)} fail" for one in evidence)],
            ["**verdict**", *(f"**{one.verdict}**" for one in evidence)],
        ],
    )
    battery_rows: dict[str, list[str]] = {}
    for result in ours.results:
        if result.group == "seeds: TestU01":
            battery_rows.setdefault(result.name.split(": ")[1], []).append(number(result.p))
    battery = (
        "TestU01's battery SmallCrush (Debian package `libtestu01-0-dev`, in non-free) reads eight streams of 32-bit "
        "numbers:\nthe high half, the low half, both in turn, and both with their bits in reverse, over chunks of one "
        "seed and over seeds\nat one chunk. Two-sided p-values:\n\n"
        + table(["test", *(f"{over}, {part}" for over, part in STREAMS)], [[k, *v] for k, v in battery_rows.items()])
        if with_battery
        else "TestU01 was left out of this run: it takes a full run, g++, and the library (Debian: `libtestu01-0-dev`, in\n"
        "non-free)."
    )
    text = f"""# Statistical evidence

Is the noise normal, are its values independent of each other, and are the chunks' seeds as good as random? This report
{"was made with `--quick`, on little data" if quick else "is made by one command"}:

```bash
pip install -r evidence/requirements.txt
python evidence/noise_quality.py
```

Torch {torch.__version__}, CPU capability {
        torch.backends.cpu.get_cpu_capability()
    }. Every test gives a p-value: the probability that ideal noise gives a
result at least as odd as the one found. The same tests judge four sources:

- **derive_chunk_seed**: this package.
- **one torch.randn**: one draw per sequence, no chunks. What it shows is ATen's own.
- **seed + chunk_index**: a deliberately bad derivation, in which neighbouring seeds share chunks.
- **same seed**: another bad one, the same seed for every chunk.

## Verdict

{summary}

![All p-values in order](images/p_values.png)

**The correction.** Among hundreds of tests some p-values are small by chance. Holm's procedure at alpha = {
        ALPHA
    } over all
tests of a column rejects any true hypothesis with a probability of at most {
        ALPHA:.0%}. What it rejects is tested again on
fresh data (seeds and chunks from 2^40 on, as much again), with the correction for the number repeated: a source fails if
a test rejects it twice. All seeds are fixed, so a run repeats bit for bit, and none was chosen for its result: 0, 1, 2, ...

{chr(10).join(second_look(one) + chr(10) for one in evidence)}
The bad derivations show that the tests can see. "seed + chunk_index" is caught by the swaps (chunk b of seed a is chunk
a of seed b) though each of its sequences alone is faultless; "same seed" by the chunks and by the spectrum.

![Any two of 64 chunks](images/chunks.png)

## What each test asks

{table(["row", "question"], [[group, QUESTIONS[group]] for group in groups])}

Moments, chi-square and tails look at {size.counted:,} values of each dtype, {size.square} neighbouring seeds of {
        size.chunks
    } chunks of {POSITIONS} positions and
{FEATURES} features; the others at the first {size.square} chunks of each, {size.kept:,} values; the seeds' tests at {
        n:,} derived seeds over
chunks and over seeds{f", equal pairs at {4 * n:,}" if n else ""}.

**Half precision is discrete**, so the tests respect rounding: bins and tails end half-way between representable
numbers, and for Kolmogorov-Smirnov and Anderson-Darling each value is replaced by a random point of the interval that
rounds to it (the randomised probability integral transform), which is exactly uniform if the values are normal numbers
rounded to nearest.

## The normal law and its tails

{tails(ours)}

In brackets: the deviation in standard deviations. In half precision a value counts as beyond k if it was so before it
was rounded up to more than k.

![The density and the tails](images/law.png)

Three things come from ATen itself, and are kept:

- **float32 ends at {
        (2 * math.log(2**24))
        ** 0.5:.2f} sigma**, because Box-Muller's radius is made of a 24-bit uniform: sqrt(2 ln 2^24). A normal law has
  one value in {1 / (2 * stats.norm.sf((2 * math.log(2**24)) ** 0.5)):.2g} beyond. float64 has 53 bits and ends at {
        (2 * math.log(2**53)) ** 0.5:.2f}. The tests stop at 5 sigma, where this cannot be seen.
- **float16 and bfloat16 are rounded**: at 1 sigma the spacing is 2^-10 and 2^-7. Here {
        rounded:.0%} of the values of a chunk of
  {
        POSITIONS * FEATURES
    } are the float32 draw of the same seed, rounded to nearest; so these three dtypes share their luck, and their
  p-values are not independent (Holm's procedure does not need that). Chunks whose number of elements is no multiple of 16
  differ in more places, and so do older versions of torch ([streams.md](streams.md)).
- **A chunk's generator is MT19937 seeded with 32 bits** on CPU: there are 2^32 chunks of a shape, and no more.

## Periodicity

The mean spectrum along the sequence, over seeds and features. A chunk that comes again has its power at whole numbers
of cycles per chunk. "seed + chunk_index" is flat, for within one sequence it repeats nothing.

![The spectrum](images/spectrum.png)

## The derived seeds

{battery}

![Avalanche and collisions](images/seeds.png)

**Within one sequence the low halves never meet, by design.** For a fixed seed the low half is a permutation of the
chunk index, so it is more even than chance: a collision test must fail on it, and does, as measured here. A random
function would have n^2/2^33 equal pairs; none has a probability of exp(-n^2/2^33), which is under {ALPHA} from n = {
        noticed:,}
chunks on. Below that, nobody can tell; above, it is the property that was wanted. This is not among the tests above.

**Across seeds they meet by chance**, as often as random 32-bit numbers.

{
        table(
            ["n", "expected of chance", "one seed, n chunks", "p of so few", "n seeds, one chunk", "p"],
            [
                [
                    f"2^{r.n.bit_length() - 1}",
                    f"{r.expected:.2g}" if r.expected < 10 else f"{r.expected:,.0f}",
                    str(r.within),
                    number(float(stats.poisson(r.expected).cdf(r.within))),
                    f"{r.across:,}",
                    number(r.across_p),
                ]
                for r in repeats
            ],
        )
    }

## All p-values

<details><summary>Noise</summary>

{details(evidence, True, of_noise)}

</details>

<details><summary>Seeds</summary>

{details([one for one in evidence if one.source.chunk_seeds], True, of_seeds)}

</details>

## What this does not show

Tests find faults or do not; they prove nothing. They say nothing about secrecy: see [streams.md](streams.md), "Not
cryptographic". CUDA's values are other ones (Philox), from the same derived seeds.

Sources: Anderson-Darling's law, Marsaglia and Marsaglia, 2004. Correction, Holm, 1979. Largest ordinate of a
periodogram, Fisher, 1929. Birthday spacings, Marsaglia and Tsang, 2002. TestU01, L'Ecuyer and Simard, 2007, who also
repeat on fresh data what looks suspect.
"""
    path.write_text(text)

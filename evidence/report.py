"""Writes the report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from noise_tests import SIGMAS, Size
from results import ALPHA, SUSPECT
from scipy import stats
from seed_tests import STREAMS, Repeats
from sources import FEATURES, OURS, POSITIONS, name_of

if TYPE_CHECKING:
    from noise_quality import Evidence

QUESTIONS = {
    "moments": "Are the mean, the variance and the third and fourth moments 0, 1, 0, 3? Has each "
    "place in a chunk mean 0?",
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
    "seed/chunk swaps": "Is chunk b of seed a like chunk a of seed b? Is chunk b of seed a + d like chunk "
    "b + d of seed a?",
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


def details(evidence: list[Evidence], groups: list[str]) -> str:
    """All p-values of some groups, but for TestU01's, which have a table of their own."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for one in evidence:
        for result in one.results:
            if result.group in groups and result.group != "seeds: TestU01":
                found.setdefault((result.group, result.name), {})[one.source.name] = result.p
    names = [one.source.name for one in evidence]
    rows = [[*test, *(number(p[name]) for name in names)] for test, p in found.items()]
    return table(["row", "test", *names], rows)


def second_look(evidence: Evidence) -> str:
    """What became of the suspect tests of a source."""
    name, suspect, confirmed = evidence.source.name, evidence.suspect, evidence.confirmed
    if not suspect:
        return f"`{name}`: no test is suspect."
    text = f"`{name}`: {len(suspect)} of {len(evidence.results)} tests are suspect; fresh data reject {len(confirmed)}."
    if len(suspect) > 20:
        return text
    again = {(result.group, result.name): result.p for result in evidence.repeated}
    rows = [[f"{r.group}, {r.name}", number(r.p), number(again[r.group, r.name])] for r in suspect]
    return text + "\n\n" + table(["test", "p", "p on fresh data"], rows)


def share_of_rounded(dtype: torch.dtype, numbers: int) -> float:
    """How many of torch's draws of a type are its float32 draws rounded."""
    draws = [torch.randn(numbers, generator=torch.Generator().manual_seed(0), dtype=d) for d in (torch.float32, dtype)]
    return float((draws[0].to(dtype) == draws[1]).double().mean())


def tails(ours: Evidence) -> str:
    """Counts beyond k sigma."""
    total = next(iter(ours.samples.values())).total
    rows = []
    for sigmas in range(1, SIGMAS + 1):
        counts = [sample.beyond(sigmas) for sample in ours.samples.values()]
        deviations = [f"{count:,} ({(count - total * p) / (total * p) ** 0.5:+.1f})" for count, p in counts]
        rows.append([str(sigmas), f"{2 * stats.norm.sf(sigmas) * total:,.1f}", *deviations])
    rows.append(["largest", "", *(f"{sample.largest:.2f}" for sample in ours.samples.values())])
    return table(["beyond k sigma", "expected", *map(name_of, ours.samples)], rows)


def battery(ours: Evidence) -> str:
    """What TestU01 found."""
    rows: dict[str, list[str]] = {}
    for result in ours.results:
        if result.group == "seeds: TestU01":
            rows.setdefault(result.name.split(": ")[1], []).append(number(result.p))
    if not rows:
        return (
            "TestU01 was left out: it takes a full run, g++ and the library (Debian: `libtestu01-0-dev`, in non-free)."
        )
    return f"""TestU01's battery SmallCrush (Debian: `libtestu01-0-dev`, in non-free) reads eight streams of 32-bit
numbers: the high half, the low half, both in turn, and both with their bits in reverse, over the chunks of a seed and
over seeds. Two-sided p-values:

{table(["test", *(f"{over}, {part}" for over, part in STREAMS)], [[test, *p] for test, p in rows.items()])}"""


def repeats_table(repeats: list[Repeats]) -> str:
    """Equal low halves, against chance."""
    head = ["n", "expected of chance", "one seed, n chunks", "p of so few", "n seeds, one chunk", "p"]
    rows = [
        [
            f"2^{r.n.bit_length() - 1}",
            f"{r.expected:.2g}" if r.expected < 10 else f"{r.expected:,.0f}",
            str(r.within),
            number(math.exp(-r.expected)) if r.within == 0 else "",
            f"{r.across:,}",
            number(r.across_p),
        ]
        for r in repeats
    ]
    return table(head, rows)


def write_report(evidence: list[Evidence], size: Size, n: int, repeats: list[Repeats], quick: bool, path: Path) -> None:
    """Fills the template."""
    ours = next(one for one in evidence if one.source is OURS)
    groups = [group for group in QUESTIONS if any(result.group == group for one in evidence for result in one.results)]
    of_seeds = [group for group in groups if group.startswith("seeds: ")]
    summary = [
        *([group, *(cell(one, group) for one in evidence)] for group in groups),
        ["**all**", *(f"{len(one.rejected)}/{len(one.results)} fail" for one in evidence)],
        ["**suspect, on fresh data**", *(f"{len(one.confirmed)}/{len(one.repeated)} fail" for one in evidence)],
        ["**verdict**", *(f"**{one.verdict}**" for one in evidence)],
    ]
    end_32, end_64 = ((2 * math.log(2) * bits) ** 0.5 for bits in (24, 53))
    rounded = min(share_of_rounded(dtype, POSITIONS * FEATURES) for dtype in (torch.float16, torch.bfloat16))
    text = Path(__file__).with_name("template.md").read_text()
    path.write_text(
        text.format(
            quick=" in its quick form, on little data" if quick else "",
            torch=torch.__version__,
            capability=torch.backends.cpu.get_cpu_capability(),
            summary=table(["smallest p-value, tests that fail", *(one.source.name for one in evidence)], summary),
            alpha=ALPHA,
            suspect=SUSPECT,
            second_looks="\n\n".join(map(second_look, evidence)) + "\n",
            questions=table(["row", "question"], [[group, QUESTIONS[group]] for group in groups]),
            seeds=size.square,
            chunks=size.chunks,
            positions=POSITIONS,
            features=FEATURES,
            elements=POSITIONS * FEATURES,
            counted=f"{size.counted:,}",
            kept=f"{size.kept:,}",
            derived=f"{n:,}",
            four_times=f"{4 * n:,}",
            tails=tails(ours),
            end_32=f"{end_32:.2f}",
            end_64=f"{end_64:.2f}",
            beyond_32=f"{0.5 / stats.norm.sf(end_32):.2g}",
            rounded=f"{rounded:.0%}",
            battery=battery(ours),
            noticed=f"{math.ceil((2**33 * math.log(1 / ALPHA)) ** 0.5):,}",
            repeats=repeats_table(repeats),
            noise_details=details(evidence, [group for group in groups if group not in of_seeds]),
            seed_details=details([one for one in evidence if one.source.chunk_seeds], of_seeds),
        )
    )

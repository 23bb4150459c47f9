"""Statistical evidence for the noise and its seeds, as a report with pictures.

    pip install -r evidence/requirements.txt
    python evidence/noise_quality.py [--quick] [--out docs]

It writes statistics.md and images/ into the folder of --out, and exits with 1 if our derivation fails or a bad one does
not. Everything is seeded: the p-values of a run are those of the next one.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import figures
import torch
from noise_tests import Sample, Size, noise_tests
from report import write_report
from results import ALPHA, SUSPECT, Result, at_most
from seed_tests import STREAMS, avalanche, measure_repeats, run_testu01, seed_tests
from sources import DTYPES, FRESH, OURS, SOURCES, Source, check_arrays, name_of

ROOT = Path(__file__).parent.parent


@dataclass
class Evidence:
    """All that was found out about a source."""

    source: Source
    samples: dict[torch.dtype, Sample] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    repeated: list[Result] = field(default_factory=list)  # the suspect tests on fresh data

    @property
    def rejected(self) -> list[Result]:
        """The tests that Holm's procedure rejects."""
        return at_most(self.results, ALPHA)

    @property
    def suspect(self) -> list[Result]:
        """These, and those that come near: they are looked at again."""
        return at_most(self.results, SUSPECT)

    @property
    def confirmed(self) -> list[Result]:
        """The suspect tests that fresh data reject."""
        return at_most(self.repeated, ALPHA)

    @property
    def verdict(self) -> str:
        """A source fails if fresh data confirm what was suspect."""
        return "fails" if self.confirmed else "passes"

    def __str__(self) -> str:
        return (
            f"{self.source.name}: {self.verdict} ({len(self.rejected)} of {len(self.results)} tests reject it; "
            f"fresh data confirm {len(self.confirmed)} of {len(self.suspect)} suspect ones)"
        )


class Progress:
    """Says what was done, and when."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def __call__(self, text: str) -> None:
        """Prints a line with the seconds so far."""
        print(f"[{time.perf_counter() - self.start:4.0f} s] {text}", flush=True)


def examine(source: Source, size: Size, n: int, say: Progress) -> Evidence:
    """Runs all tests of a source, but for TestU01."""
    evidence = Evidence(source)
    for dtype in DTYPES:
        evidence.samples[dtype], found = noise_tests(source, dtype, size, first_seed=0)
        evidence.results += found
        say(f"{source.name}, {name_of(dtype)}: {len(found)} tests, smallest p {min(r.p for r in found):.2g}")
    if source.chunk_seeds:
        found = seed_tests(source, n, first=0)
        evidence.results += found
        say(f"{source.name}, seeds: {len(found)} tests, smallest p {min(r.p for r in found):.2g}")
    return evidence


def look_again(evidence: Evidence, size: Size, n: int, say: Progress) -> None:
    """Repeats the suspect tests with seeds and chunks that were not looked at before."""
    suspect = {(result.group, result.name) for result in evidence.suspect}
    for group in sorted({group_of(result) for result in evidence.suspect}):
        again = [r for r in rerun(evidence.source, group, size, n) if (r.group, r.name) in suspect]
        evidence.repeated += again
        say(f"{evidence.source.name}, {group} again: {len(again)} tests, smallest p {min(r.p for r in again):.2g}")


def group_of(result: Result) -> str:
    """What must be drawn again to repeat a test: a dtype, the seeds, or a stream of TestU01."""
    if result.group == "seeds: TestU01":
        return result.name.split(":")[0]
    return "seeds" if result.group.startswith("seeds: ") else result.name.split(":")[0]


def rerun(source: Source, group: str, size: Size, n: int) -> list[Result]:
    """The tests of a group on fresh data."""
    for dtype in DTYPES:
        if group == name_of(dtype):
            return noise_tests(source, dtype, size, first_seed=FRESH)[1]
    if group == "seeds":
        return seed_tests(source, n, first=FRESH)
    return dict(run_testu01([stream for stream in STREAMS if group == f"over {stream[0]}, {stream[1]}"], FRESH))[group]


def battery(say: Progress) -> Iterator[Result]:
    """TestU01 on our seeds."""
    found = False
    for name, results in run_testu01(STREAMS, first=0):
        found = True
        say(f"TestU01, {name}: {len(results)} statistics, smallest p {min(r.p for r in results):.2g}")
        yield from results
    if not found:
        say("TestU01 or a compiler is missing: left out")


def main() -> int:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data, and no TestU01: half a minute at most")
    parser.add_argument("--out", type=Path, help="folder of the report (docs, or build/evidence with --quick)")
    options = parser.parse_args()
    out: Path = options.out or ROOT / ("build/evidence" if options.quick else "docs")
    size, n = (Size(12, 24), 2**14) if options.quick else (Size(64, 512), 2**20)

    torch.set_num_threads(1)  # the other core is TestU01's
    say = Progress()
    check_arrays()
    with ThreadPoolExecutor(1) as executor:
        testu01 = None if options.quick else executor.submit(lambda: list(battery(say)))  # in a process of its own
        examined = {source.name: examine(source, size, n, say) for source in SOURCES}
        if testu01:
            examined[OURS.name].results += testu01.result()
    for evidence in examined.values():
        look_again(evidence, size, n, say)
    repeats = measure_repeats(4 * n)

    images = out / "images"
    images.mkdir(parents=True, exist_ok=True)
    first = {name: evidence.samples[DTYPES[0]] for name, evidence in examined.items()}
    figures.draw_law(examined[OURS.name].samples, images / "law.png")
    figures.draw_chunks(first, images / "chunks.png")
    figures.draw_spectrum(first, size, images / "spectrum.png")
    figures.draw_p_values({name: e.results for name, e in examined.items()}, images / "p_values.png")
    figures.draw_seeds(avalanche(OURS, n // 64, 0)[0], n // 64, repeats, images / "seeds.png")
    write_report(list(examined.values()), size, n, repeats, options.quick, out / "statistics.md")
    say(f"wrote {out / 'statistics.md'}")

    print()
    for evidence in examined.values():
        print(evidence)
    return int(any((evidence.verdict == "passes") != evidence.source.good for evidence in examined.values()))


if __name__ == "__main__":
    sys.exit(main())

"""P-values, and what is concluded from many of them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

ALPHA = 0.01
SUSPECT = 0.1


@dataclass(frozen=True)
class Result:
    """A test: the row of the report it belongs to, its name and its p-value."""

    group: str
    name: str
    p: float


def two_sided(below: float, above: float) -> float:
    """The p-value from the probabilities of a statistic at most, and at least, the observed one."""
    return float(min(1.0, 2 * min(below, above)))


def normal_p(z: float) -> float:
    """Of a standard normal statistic."""
    return two_sided(special.ndtr(z), special.ndtr(-z))


def chi_square_p(statistic: float, degrees: float) -> float:
    """Two-sided: an agreement that is too good is no chance either."""
    return two_sided(special.chdtr(degrees, statistic), special.chdtrc(degrees, statistic))


def sum_of_squares_p(z: NDArray[np.float64]) -> float:
    """One p-value for many independent standard normal statistics."""
    return chi_square_p(float(np.square(z).sum()), np.size(z))


def count_p(observed: int, trials: int, probability: float) -> float:
    """Of a number of successes."""
    law = stats.binom(trials, probability)
    return two_sided(law.cdf(observed), law.sf(observed - 1))


def kolmogorov_smirnov_p(u: NDArray[np.float64]) -> float:
    """Of sorted numbers against the uniform law on [0, 1]."""
    n = u.size
    steps = np.arange(n)
    distance = max(float((u - steps / n).max()), float(((steps + 1) / n - u).max()))
    return float(stats.kstwo.sf(distance, n))


def anderson_darling_p(u: NDArray[np.float64]) -> float:
    """Of sorted numbers against the uniform law on [0, 1], no parameter estimated.

    Limit law: G. Marsaglia, J. Marsaglia, "Evaluating the Anderson-Darling distribution", J. Stat. Software 9(2), 2004,
    to 2e-6. Above 8 its upper tail is sqrt(3) times that of the heaviest term of the sum of squares that it is.
    """
    n = u.size
    u = np.clip(u, 1e-300, 1 - 2**-53)
    z = -n - float(((2 * np.arange(n) + 1) * (np.log(u) + np.log1p(-u[::-1]))).mean())
    if z > 8:
        return float(3**0.5 * special.erfc(z**0.5))
    if z < 2:
        cubic = 0.247105 - (0.0649821 - (0.0347962 - (0.0116720 - 0.00168691 * z) * z) * z) * z
        cdf = np.exp(-1.2337141 / z) / np.sqrt(z) * (2.00012 + cubic * z)
    else:
        quintic = 1.0776 - (2.30695 - (0.43424 - (0.082433 - (0.008056 - 0.0003146 * z) * z) * z) * z) * z
        cdf = np.exp(-np.exp(quintic))
    return float(1 - cdf)


def at_most(results: list[Result], level: float) -> list[Result]:
    """Those whose corrected p-value is at most `level`."""
    corrected = holm([result.p for result in results])
    return [result for result, p in zip(results, corrected, strict=True) if p <= level]


def holm(p: list[float]) -> NDArray[np.float64]:
    """P-values corrected for their number: S. Holm, "A simple sequentially rejective multiple test procedure", 1979.

    Rejecting those at most alpha rejects any true hypothesis with probability at most alpha, however they depend.
    """
    values = np.array(p)
    order = np.argsort(values)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(1, np.maximum.accumulate(values[order] * np.arange(len(p), 0, -1)))
    return corrected

"""Growth over time with its uncertainty.

Samples of a process are not independent: memory now is memory a second ago plus a little. So
one value, their mean or median, stands for the samples of a block. A line is fitted to the blocks,
and its standard error is widened by the correlation that is left between neighbouring residuals
(effective number of blocks).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

BLOCKS: Final = 24
BLOCKS_MIN: Final = 12
HOUR: Final = 3600.0
# Quantiles 0.975 of Student's t for 1 to 30 degrees of freedom.
T_975: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Trend(msgspec.Struct, frozen=True):
    """A straight line through samples."""

    per_hour: float
    half_width: float  # of the 95 % interval of per_hour
    mean: float
    seconds: float  # that the samples cover


def trend(
    points: Sequence[tuple[float, float]],
    typical: Callable[[Sequence[float]], float] = statistics.fmean,
    blocks: int = BLOCKS,
) -> Trend | None:
    """Fit a line to (seconds, value), which are in order; None for too few samples.

    Args:
        points: the samples.
        typical: value of a block; a median passes over the outliers of a fault.
        blocks: number of blocks of equal length.
    """
    means = _block_values(points, typical, blocks)
    if len(means) < BLOCKS_MIN:
        return None
    count = len(means)
    middle = sum(x for x, _ in means) / count
    mean = sum(y for _, y in means) / count
    spread = sum((x - middle) ** 2 for x, _ in means)
    slope = sum((x - middle) * (y - mean) for x, y in means) / spread
    residuals = [y - mean - slope * (x - middle) for x, y in means]
    square = sum(each * each for each in residuals)
    effective = count * (1 - (kept := _correlation(residuals))) / (1 + kept)
    freedom = max(1, int(effective) - 2)
    error = math.sqrt(square / freedom / spread)
    width = T_975[min(freedom, len(T_975)) - 1] * error
    covered = points[-1][0] - points[0][0]
    return Trend(slope * HOUR, width * HOUR, mean, covered)


def _block_values(
    points: Sequence[tuple[float, float]], typical: Callable[[Sequence[float]], float], blocks: int
) -> list[tuple[float, float]]:
    """Return a point for each block of equal length in time; those without samples are left out."""
    if len(points) < 2:
        return []
    begin, end = points[0][0], points[-1][0]
    if end <= begin:
        return []
    groups: list[list[tuple[float, float]]] = [[] for _ in range(blocks)]
    for point in points:
        groups[min(blocks - 1, int((point[0] - begin) / (end - begin) * blocks))].append(point)
    return [
        (statistics.fmean([x for x, _ in each]), typical([y for _, y in each]))
        for each in groups
        if each
    ]


def _correlation(residuals: Sequence[float]) -> float:
    """Return the correlation of neighbours, 0 to 0.9; negative ones are not made use of."""
    square = sum(each * each for each in residuals)
    if square == 0:
        return 0.0
    product = sum(a * b for a, b in itertools.pairwise(residuals))
    return min(0.9, max(0.0, product / square))


def quantile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that `part` of all values do not exceed; `values` is not empty."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]

"""Growth over time with its uncertainty.

Samples of a process are not independent: memory now is memory a second ago plus a little. So
one value, their mean or median, stands for the samples of a block. A line is fitted to the blocks,
and its standard error is widened by the correlation that is left between neighbouring residuals
(effective number of blocks). Where another series explains a part of the values (a covariate),
the line is fitted to what it leaves unexplained (Frisch and Waugh 1933), which is growth at a
constant covariate.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from operator import mul
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
Points = Sequence[tuple[float, float]]  # (seconds, value)


class Trend(msgspec.Struct, frozen=True):
    """A straight line through samples."""

    per_hour: float
    half_width: float  # of the 95 % interval of per_hour
    mean: float
    seconds: float  # that the samples cover


def trend(
    points: Points,
    typical: Callable[[Sequence[float]], float] = statistics.fmean,
    blocks: int = BLOCKS,
    covariate: Points = (),
) -> Trend | None:
    """Fit a line to (seconds, value), which are in order; None for too few samples.

    Args:
        points: the samples.
        typical: value of a block; a median passes over the outliers of a fault.
        blocks: number of blocks of equal length.
        covariate: samples of what the values depend on beside time; blocks without are left out.
    """
    rows = _rows(points, typical, blocks, covariate)
    if len(rows) < BLOCKS_MIN:
        return None
    times, values, others = ([row[column] for row in rows] for column in range(3))
    left_times, left_values = _unexplained(times, others), _unexplained(values, others)
    spread = sum(each * each for each in left_times)
    if spread == 0:
        return None
    slope = sum(map(mul, left_times, left_values)) / spread
    residuals = [y - slope * x for x, y in zip(left_times, left_values, strict=True)]
    square = sum(each * each for each in residuals)
    effective = len(rows) * (1 - (kept := _correlation(residuals))) / (1 + kept)
    freedom = max(1, int(effective) - (3 if covariate else 2))
    error = math.sqrt(square / freedom / spread)
    width = T_975[min(freedom, len(T_975)) - 1] * error
    covered = points[-1][0] - points[0][0]
    return Trend(slope * HOUR, width * HOUR, statistics.fmean(values), covered)


def _rows(
    points: Points, typical: Callable[[Sequence[float]], float], blocks: int, covariate: Points
) -> list[tuple[float, float, float]]:
    """Return time, value and covariate (0 without one) of each block that has samples of both."""
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return []
    times: list[list[float]] = [[] for _ in range(blocks)]
    values: list[list[float]] = [[] for _ in range(blocks)]
    others: list[list[float]] = [[] for _ in range(blocks)]
    begin, end = points[0][0], points[-1][0]

    def block(at: float) -> int:
        return min(blocks - 1, int((at - begin) / (end - begin) * blocks))

    for at, value in points:
        times[block(at)].append(at)
        values[block(at)].append(value)
    for at, value in covariate:
        if begin <= at <= end:
            others[block(at)].append(value)
    return [
        (statistics.fmean(each), typical(values[number]), typical(others[number] or [0.0]))
        for number, each in enumerate(times)
        if each and (others[number] or not covariate)
    ]


def _unexplained(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the residuals of a line fitted to (other, value)."""
    mean, middle = statistics.fmean(values), statistics.fmean(others)
    apart = [each - middle for each in others]
    spread = sum(each * each for each in apart)
    slope = sum(map(mul, apart, values)) / spread if spread else 0.0
    return [y - mean - slope * x for x, y in zip(apart, values, strict=True)]


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

#!/usr/bin/env python3
"""Measures the sets of the direct form: what they promise, to 40 digits and for every sigma.

    verify.py [--from C|TEXT] [NAME...]     print a table (default: the C table, all sets)

Bounds over an interval hold between the points of the grid too. sigma h(sigma^2) - 1 is a
polynomial of degree D = 2 deg h + 1, and on n Chebyshev points of an interval a polynomial
of degree D < n comes within the factor cos(pi D / 2n) of its largest magnitude there (Ehlich
and Zeller). With n = 16 D the largest value is thus known to half a per cent from the grid
alone; where it is taken is then found with 50 digits.
"""
import argparse
import math
from dataclasses import dataclass

import numpy as np
from mpmath import mp, mpf

from programs import TABLE, Quintics, read_sets, read_table

DIGITS = 50
OVERSAMPLING = 16
SLACK = 1 / math.cos(math.pi / (2 * OVERSAMPLING))  # grid maximum to true maximum, at most
BAND = (0.7, 1.3)  # a result outside it is no longer near an orthogonal matrix
MARGIN = 1.01  # sigma just above 1: what a norm computed with rounding may leave
NEGATIVE = -1e-6  # sigma^2 just below 0: what rounding makes of a zero one


@dataclass
class Measures:
    name: str
    products: int
    terms: int
    degree: int
    deviation: mpf  # largest |sigma h - 1| on [lower, 1]
    deviation_bound: float  # above it for every sigma, by the grid alone
    low: mpf  # smallest and largest sigma h on [1, MARGIN]
    high: mpf
    edge: mpf  # the first sigma > 1 at which sigma h leaves BAND
    at_zero: mpf  # h(0)
    negative: mpf  # largest |h| for sigma^2 in [NEGATIVE, 0]
    growth: mpf  # |h(-1e-5)| / |h(0)|
    float64_error: float  # largest difference of the grid's values to those with 50 digits


def chebyshev_grid(low, high, degree):
    """Points of [low, high], ends included, dense enough for SLACK. long double where the
    machine has one."""
    n = OVERSAMPLING * degree
    angle = np.linspace(0, np.pi, n + 1, dtype=np.longdouble)
    return (low + high) / 2 - (high - low) / 2 * np.cos(angle)


def maximize(f, low, high, steps=60):
    """Where in [low, high] f is largest, if it has one maximum there; by golden section."""
    ratio = (mp.sqrt(5) - 1) / 2
    x, y = high - ratio * (high - low), low + ratio * (high - low)
    fx, fy = f(x), f(y)
    for _ in range(steps):
        if fx > fy:
            high, y, fy = y, x, fx
            x = high - ratio * (high - low)
            fx = f(x)
        else:
            low, x, fx = x, y, fy
            y = low + ratio * (high - low)
            fy = f(y)
    return max((low, high, x, y), key=f)


def largest(f, grid, values):
    """The maximum of f over the range of the grid, given its values there: the highest points
    of the grid that could exceed all others in between are refined with all digits."""
    candidates = [i for i in np.argsort(values)[::-1][:64]
                  if (i == 0 or values[i] >= values[i - 1])
                  and (i + 1 == len(values) or values[i] >= values[i + 1])]
    places = [maximize(f, to_mpf(grid[max(i - 1, 0)]), to_mpf(grid[min(i + 1, len(grid) - 1)]))
              for i in candidates[:3]]
    return max(f(x) for x in places)


def first_departure(result, start, stop, points=200001):
    """The first sigma in [start, stop] at which the result leaves BAND; None if there is none."""
    grid = np.linspace(start, stop, points)
    with np.errstate(over="ignore", invalid="ignore"):
        values = result(grid)
        outside = np.flatnonzero(~((values >= BAND[0]) & (values <= BAND[1])))
    if outside.size == 0:
        return None
    low, high = mpf(float(grid[max(outside[0] - 1, 0)])), mpf(float(grid[outside[0]]))
    for _ in range(60):
        middle = (low + high) / 2
        if BAND[0] <= result(middle) <= BAND[1]:
            low = middle
        else:
            high = middle
    return low


@mp.workdps(DIGITS)
def measure(program):
    """Everything the table of the sets says of a program."""
    exact = program.map(mpf)
    degree = 2 * program.degree() + 1

    def result(sigma):  # with the digits of its argument
        return sigma * (exact if isinstance(sigma, mpf) else program).h(sigma * sigma)

    def extreme(sign, shift, low, high):
        """The largest of sign * (result - shift), or of |result - shift| for sign 0, on
        [low, high], and what the grid alone proves for the latter."""
        def f(sigma):
            value = result(sigma) - shift
            return abs(value) if sign == 0 else sign * value

        grid = chebyshev_grid(low, high, degree)
        values = f(grid)
        return largest(f, grid, values), float(values.max()) * SLACK, grid

    deviation, bound, grid = extreme(0, 1, program.lower, 1.0)
    low = 1 - extreme(-1, 1, 1.0, MARGIN)[0]
    high = 1 + extreme(1, 1, 1.0, MARGIN)[0]
    sample = grid[:: max(1, len(grid) // 200)].astype(float)
    error = max(abs(float(result(mpf(float(s))) - mpf(float(result(s))))) for s in sample)

    def magnitude(r):
        return abs((exact if isinstance(r, mpf) else program).h(r))

    below = np.linspace(NEGATIVE, 0.0, 2001)
    at_zero = exact.h(mpf(0))
    return Measures(
        program.name, program.products, program.terms(), program.degree(), deviation, bound,
        low, high, first_departure(result, 1.0, 1.1), at_zero,
        largest(magnitude, below, magnitude(below)),
        magnitude(mpf("-1e-5")) / abs(at_zero), error)


def to_mpf(x):
    """A long double without loss: its leading double and the rest."""
    leading = float(x)
    return mpf(leading) + mpf(float(x - np.longdouble(leading)))


HEADER = f"""\
| set | K | terms | degree | deviation on [l, 1] | proved below | on (1, {MARGIN}] | \
leaves [{BAND[0]}, {BAND[1]}] above | h(0) | largest h on [{NEGATIVE:g}, 0] | at -1e-5 |
|---|---|---|---|---|---|---|---|---|---|---|"""


def row(m):
    edge = "–" if m.edge is None else f"{float(m.edge):.4f}"
    return (f"| {m.name} | {m.products} | {m.terms} | {m.degree} | {float(m.deviation):.6f} | "
            f"{m.deviation_bound:.6f} | {float(m.low):.3f}–{float(m.high):.3f} | {edge} | "
            f"{float(m.at_zero):.1f} | {float(m.negative):.1f} | ×{float(m.growth):.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="sets to measure (all)")
    parser.add_argument("--from", dest="source", default=str(TABLE), metavar="FILE",
                        help="the C table (default) or a text file of sets")
    options = parser.parse_args()
    if options.source.endswith(".c"):
        sets = {name: found[0] for name, found in read_table(options.source).items()}
    else:
        sets = read_sets(options.source)
    for name in options.names:
        if name not in sets:
            parser.error(f"{options.source} has no set {name}; it has {', '.join(sets)}")
    print(HEADER)
    if not options.names:
        print(row(measure(Quintics())))
    for name in options.names or sets:
        print(row(measure(sets[name])), flush=True)


if __name__ == "__main__":
    main()

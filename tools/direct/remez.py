#!/usr/bin/env python3
"""The bound that no program passes: how near to 1 on [lower, 1] an odd polynomial can be.

    remez.py [--lower L] [PRODUCTS...]       print the bound for each number of products

K products make polynomials h of degree at most 2^K, so no program is better than the best
sigma h(sigma^2) of that degree. It is found by Remez exchange: on a reference of N + 2 points,
for N the degree of h, an error of alternating sign and equal size is a linear system; the
extrema of the error are the next reference.
"""
import argparse

import numpy as np

PRODUCTS = (6, 7, 8, 9, 10)


def best_deviation(degree, lower, tolerance=1e-4, rounds=100):
    """(smallest, largest): no polynomial of this degree is nearer to 1 than `smallest`, and the one
    found deviates by `largest`."""
    low, high = lower**2, 1.0

    def sigma_at(angle):
        return np.sqrt((low + high) / 2 - (high - low) / 2 * np.cos(angle))

    def basis(angle):  # Chebyshev polynomials in sigma^2, times sigma
        return sigma_at(angle)[:, None] * np.cos((np.pi - angle)[:, None] * np.arange(degree + 1))

    # Dense where a polynomial in sigma^2 can oscillate: uniform in the angle.
    grid = np.linspace(0, np.pi, max(32 * (degree + 2), 1000))
    reference = np.linspace(0, np.pi, degree + 2)
    signs = (-1.0) ** np.arange(degree + 2)
    for _ in range(rounds):
        system = np.column_stack([basis(reference), signs])
        *coefficients, level = np.linalg.solve(system, np.ones(degree + 2))
        error = np.concatenate([basis(part) @ coefficients - 1
                                for part in np.array_split(grid, max(1, len(grid) // 4096))])
        reference, peaks = exchange(grid, error, degree + 2)
        if peaks.max() - abs(level) <= tolerance * peaks.max():
            return abs(level), peaks.max()
    raise ArithmeticError(f"no convergence for degree {degree} on [{lower}, 1]")


def exchange(grid, error, count):
    """The largest error of each stretch of one sign, as (places, sizes): the vertex of the parabola
    through the highest point of the grid and its neighbours. The weaker ends are dropped."""
    starts = np.flatnonzero(np.diff(np.sign(error))) + 1
    stretches = np.split(np.arange(len(grid)), starts)
    peaks = [stretch[np.abs(error[stretch]).argmax()] for stretch in stretches]
    if len(peaks) < count:
        raise ArithmeticError(f"the error has {len(peaks)} extrema, not {count}")
    while len(peaks) > count:
        peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
    places, sizes = grid[peaks], np.abs(error[peaks])
    for n, i in enumerate(peaks):
        if 0 < i < len(grid) - 1:
            before, here, after = np.abs(error[i - 1:i + 2])
            bend = before - 2 * here + after
            if bend < 0 and here >= max(before, after):
                shift = (before - after) / (2 * bend)
                places[n] += shift * (grid[1] - grid[0])
                sizes[n] += (before - after) * shift / -4
    return places, sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("products", nargs="*", type=int, default=PRODUCTS, metavar="PRODUCTS")
    parser.add_argument("--lower", type=float, default=1e-3)
    options = parser.parse_args()
    for products in options.products:
        smallest, largest = best_deviation(2**products, options.lower)
        print(f"{products} products, degree {2**products}: {smallest:.6f} to {largest:.6f}",
              flush=True)


if __name__ == "__main__":
    main()

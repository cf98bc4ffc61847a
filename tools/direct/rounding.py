#!/usr/bin/env python3
"""How far rounding to f32 moves the result of the direct form: simulated with NumPy.

    rounding.py [--from FILE] [--seeds N] [--seed S] [--shape M N] [NAME...]

X has random singular vectors and one of the hard spectra, divided by its Frobenius norm. The
same program runs in f32 and in f64; printed is the spectral norm of the difference relative
to that of the f64 result, the worst of N seeds. As in the library one triangle of every
product is computed and mirrored.
"""
import argparse

import numpy as np

from programs import TABLE, Quintics, combine, read_sets, read_table

SPECTRA = {
    "logspace(0,−3)": lambda m, rng: np.logspace(0, -3, m),
    "logspace(0,−9)": lambda m, rng: np.logspace(0, -9, m),
    "half zeros": lambda m, rng: np.repeat([1.0, 0.0], [m - m // 2, m // 2]),
    "rank 2": lambda m, rng: np.repeat([1.0, 0.0], [2, m - 2]),
    "linspace(0,.5)": lambda m, rng: np.linspace(0, .5, m),
    "exponential": lambda m, rng: np.exp(-np.arange(m) / 4.0),
    "rank 1": lambda m, rng: np.repeat([1.0, 0.0], [1, m - 1]),
    "two large": lambda m, rng: np.repeat([1.0, 1e-6], [2, m - 2]),
    "Gamma(3,.5)": lambda m, rng: rng.gamma(3, .5, m),
}


def matrix(spectrum, m, n, rng):
    """An m x n matrix with these singular values, or Gaussian if None; of norm 1, in f32."""
    g = rng.standard_normal((m, n))
    if spectrum is not None:
        u, _, vt = np.linalg.svd(g, full_matrices=False)
        g = (u * spectrum(m, rng)) @ vt
    return (g / np.linalg.norm(g)).astype(np.float32)


def mirrored(product):
    """Its lower triangle, on both sides."""
    lower = np.tril(product)
    return lower + np.tril(product, -1).T


def direct(program, x):
    """The direct form in the precision of x."""
    kind = x.dtype.type
    y = [np.eye(len(x), dtype=kind), mirrored(x @ x.T)]
    for a, b in zip(program.a, program.b):
        left, right = ([kind(v) for v in factor] for factor in (a, b))
        y.append(mirrored(combine(left, y) @ combine(right, y)))
    return combine([kind(v) for v in program.c], y) @ x


def gram(quintics, x):
    """The steps in Gram form, without restart."""
    kind = x.dtype.type
    one, r, q = np.eye(len(x), dtype=kind), mirrored(x @ x.T), None
    for a, b, c in quintics.steps:
        factor = kind(a) * one + kind(b) * r + kind(c) * mirrored(r @ r)
        q = factor if q is None else mirrored(q @ factor)
        r = mirrored(factor @ mirrored(r @ factor))
    return q @ x


def relative_error(program, x):
    run = gram if isinstance(program, Quintics) else direct
    with np.errstate(all="ignore"):
        exact = run(program, x.astype(np.float64))
        return np.linalg.norm(run(program, x) - exact, 2) / np.linalg.norm(exact, 2)


def worst_errors(programs, seeds, seed=0, shape=(256, 1024), spectra=tuple(SPECTRA)):
    """{name: {spectrum: the worst relative error}}; all programs see the same matrices."""
    worst = {p.name: {} for p in programs}
    for name in ("Gaussian", *spectra):
        for s in range(seed, seed + seeds):
            x = matrix(SPECTRA.get(name), *shape, np.random.default_rng(s))
            for p in programs:
                error = relative_error(p, x)
                worst[p.name][name] = max(error, worst[p.name].get(name, 0.0))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="sets to run (all)")
    parser.add_argument("--from", dest="source", default=str(TABLE), metavar="FILE",
                        help="the C table (default) or a text file of sets")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shape", type=int, nargs=2, default=(256, 1024), metavar=("M", "N"))
    options = parser.parse_args()
    sets = (read_sets(options.source) if not options.source.endswith(".c")
            else {name: found[0] for name, found in read_table(options.source).items()})
    chosen = [Quintics(), *sets.values()] if not options.names else [sets[n] for n in options.names]
    table = worst_errors(chosen, options.seeds, options.seed, options.shape)
    columns = list(next(iter(table.values())))
    print(f"| | {' | '.join(columns)} |\n|---{'|---' * len(columns)}|")
    for name, row in table.items():
        print(f"| {name} | {' | '.join(f'{row[c]:.1e}' for c in columns)} |")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Finds programs of the direct form: from random starts, or from a known set.

    fit.py --pattern SSSSSGSGSGS --limit .138            11 products from scratch, then pruned
    fit.py --start P12 --from sets.txt --top 1.03        from a set, for another purpose

Letters of a pattern, one for each product: see family.py. Prints the seed and what happens;
writes the program in the format of sets.txt to --output. docs/direct.md explains the method.
"""
import argparse
import pathlib
import time
from dataclasses import dataclass

import numpy as np

from family import Family
from programs import SETS, format_set, read_sets

AMPLIFICATION_NORM = 4  # high enough that no pair is sacrificed


@dataclass
class Problem:
    """sigma h(sigma^2) near 1 on [lower, top], and within `loose` of it on [top, reach]. What
    `loose` allows there counts as `limit` would below top."""

    lower: float = 1e-3
    top: float = 1.01
    reach: float = 0.0
    loose: float = 0.25
    limit: float = 0.1
    penalty: float = 0.0  # weight of the amplification of rounding errors
    points: int = 1000

    def __post_init__(self):
        # Logarithmic, and denser towards 1, where the polynomials oscillate fastest.
        parts = [np.geomspace(self.lower, 1, self.points),
                 1 - np.geomspace(1e-5, .5, self.points // 3),
                 np.linspace(1, self.top, max(24, self.points // 25))]
        if self.reach > self.top:
            parts.append(np.linspace(self.top, self.reach, max(24, self.points // 15)))
        self.sigma = np.unique(np.concatenate(parts))
        self.weight = np.where(self.sigma > self.top, self.limit / self.loose, 1.0)

    def deviation(self, family, theta):
        """On the whole grid, weighted."""
        return np.abs(self.errors(family, theta)).max()

    def errors(self, family, theta):
        return self.weight * (self.sigma * family.h(theta, self.sigma**2) - 1)

    def amplification(self, family, theta):
        values = family.amplification(theta, lower=self.lower, derivatives=False)
        return norm(values, AMPLIFICATION_NORM)

    def objective(self, family, theta, p):
        with np.errstate(all="ignore"):
            total = norm(self.errors(family, theta), p) ** 2
            if self.penalty > 0 and np.isfinite(total):
                total += (self.penalty * self.amplification(family, theta)) ** 2
        return total / 2

    def model(self, family, theta, p):
        """A quadratic model of the objective, (gradient, Hessian), and the Hessian of the sum of
        squares with uniform weights."""
        h, rows = family.jacobian(theta, self.sigma**2)
        scale = self.weight * self.sigma
        rows *= scale
        gradient, hessian = norm_model(scale * h - self.weight, rows, p)
        uniform = rows @ rows.T / len(scale)
        if self.penalty > 0:
            values, rows = family.amplification(theta, lower=self.lower)
            more = norm_model(values, rows, AMPLIFICATION_NORM)
            gradient += self.penalty**2 * more[0]
            hessian += self.penalty**2 * more[1]
        return gradient, hessian, uniform


def norm(values, p):
    """The p-norm of the mean, without overflow."""
    largest = np.abs(values).max()
    if not 0 < largest < np.inf:
        return largest
    return largest * np.mean((np.abs(values) / largest) ** p) ** (1 / p)


def norm_model(values, rows, p):
    """Gradient of half the squared p-norm, and the part of its Hessian that is never negative."""
    largest = np.abs(values).max()
    weight = (np.abs(values) / largest) ** (p - 2)
    weight /= len(values) * (norm(values, p) / largest) ** (p - 2)
    return rows @ (weight * values), (p - 1) * (rows * weight) @ rows.T


def balance(uniform):
    """Units of the parameters in which each changes the polynomial by as much; 0 if none does."""
    diagonal = np.diag(uniform)
    return np.where(diagonal > 1e-200, 1 / np.sqrt(np.maximum(diagonal, 1e-200)), 0.0)


def minimize(problem, family, theta, p, iterations, damping=1e-1, tolerance=1e-4):
    """Levenberg-Marquardt on the objective; (parameters, objective, damping) at its end.

    The damping lives in function space: with the Hessian of a high norm alone, points of small
    error carry no weight, and any step worth taking spoils them. mu J^T J with uniform weights
    keeps all points where they are unless moving them pays. A trace of the usual diagonal
    holds the directions in which nothing changes, as scaling a Y and its uses.
    """
    value = problem.objective(family, theta, p)
    history = [value]
    for _ in range(iterations):
        with np.errstate(all="ignore"):  # what overflows is given up
            gradient, hessian, uniform = problem.model(family, theta, p)
            scale = balance(uniform)
            gradient = gradient * scale
            hessian, uniform = (matrix * scale * scale[:, None] for matrix in (hessian, uniform))
        if not (np.isfinite(hessian).all() and np.isfinite(gradient).all()):
            break
        for _ in range(20):
            diagonal = np.eye(len(theta)) * (1e-10 + 1e-4 * damping)
            try:
                step = -np.linalg.solve(hessian + damping * uniform + diagonal, gradient)
            except np.linalg.LinAlgError:
                damping *= 4
                continue
            trial = theta + step * scale
            trial_value = problem.objective(family, trial, p)
            if trial_value < value:
                break
            damping *= 4
        else:
            break
        theta, value, damping = trial, trial_value, max(damping / 5, 1e-9)
        history.append(value)
        if len(history) > 15 and history[-15] - value < 2 * tolerance * value:
            break
    return theta, value, damping


def climb(problem, family, theta, powers=(4, 8, 16, 32, 64, 128), iterations=150):
    """From a sum of squares towards the largest error."""
    damping = 1e-2
    for p in powers:
        theta, _, damping = minimize(problem, family, theta, p, iterations, max(damping, 1e-3))
    return theta


def random_start(problem, pattern, rng):
    """A tower of logistic maps y -> y (y - 1) on [0, 1], each of which stretches what lies near 0
    about fourfold, disturbed at random: a few stages resolve six decades. Then the best sum."""
    family = Family.of_pattern(pattern)
    theta = np.zeros(family.size)
    r = problem.sigma**2
    disturbance, smallest = .3 * rng.uniform(.3, 1.5), rng.uniform(.4, .9)
    y = [np.ones_like(r), r]

    def put(side, j, i, value):
        if (side, j, i) in family.slots:
            theta[family.slots[side, j, i]] = value

    for j in range(1, family.products + 1):
        top = y[j][np.abs(y[j]).argmax()]  # its sign turns the next factor upright
        for side in "ab":
            slope = rng.normal() * disturbance if j > 1 else 0.0
            height = rng.uniform(smallest, 1) / (y[j] / top + slope * r).max()
            if j > 1:
                put(side, j, 1, slope * height)
            put(side, j, j, height / top)
            for i in range(2, j):
                put(side, j, i, .02 * rng.normal() / np.abs(y[i]).max())
        put("b", j, 0, -1.0)
        a, b = (sum(theta[k] * y[i] for i, k in family.rows[side, j]) for side in "ab")
        y.append(a * b)
    places, numbers = zip(*family.rows["c", 0])
    columns = np.array([problem.sigma * y[i] for i in places]).T
    theta[list(numbers)] = np.linalg.lstsq(columns, np.ones_like(r), rcond=1e-10)[0]
    return family, theta


def search(problem, pattern, seed, pool=24, say=print):
    """The best of `pool` random starts: most are given up early."""
    coarse = Problem(**{**vars_of(problem), "points": 500, "penalty": 0.0})
    found = []
    for start in range(seed, seed + pool):
        family, theta = random_start(coarse, pattern, np.random.default_rng(start))
        found.append((coarse.objective(family, theta, 2), start, theta, 1.0))
    for p, iterations, keep in ((2, 30, 1), (2, 100, 3), (4, 150, 6), (16, 300, 12)):
        found = sorted(found, key=lambda f: f[:2])[: max(1, pool // keep)]
        found = [(value, start, theta, damping)
                 for _, start, theta, damping in found
                 for theta, value, damping in
                 [minimize(coarse, family, theta, p, iterations, max(damping, 1e-3))]
                 if np.isfinite(value)]
    _, start, theta, _ = min(found, key=lambda f: f[:2])
    theta = climb(problem, family, theta)
    say(f"seed {start}: {describe(problem, family, theta)}")
    return family, theta


def vars_of(problem):
    return {name: getattr(problem, name) for name in problem.__dataclass_fields__}


def describe(problem, family, theta):
    program = family.program(theta)
    return (f"deviation {problem.deviation(family, theta):.5f}, {program.terms()} terms, "
            f"amplification {problem.amplification(family, theta):.1f}")


def prunable(family, theta):
    """The parameters whose absence saves the reading of a matrix; never the latest Y."""
    terms = family.program(theta).terms()
    kept = {k for (side, j, i), k in family.slots.items() if side != "c" and i == j}
    for k in range(family.size):
        if k not in kept and family.without(theta, k)[0].program(np.delete(theta, k)).terms() < terms:
            yield k


def saliencies(problem, family, theta):
    """By how much the objective would grow, to second order, if a parameter were 0 and all others
    followed: theta^2 / (inverse Hessian)_kk."""
    _, hessian, uniform = problem.model(family, theta, 16)
    scale = balance(uniform)
    inverse = np.linalg.pinv((hessian + 1e-4 * uniform) * scale * scale[:, None], rcond=1e-12,
                             hermitian=True)
    effective = np.flatnonzero(scale)
    result = np.zeros(family.size)  # what has no effect is not missed
    result[effective] = ((theta[effective] / scale[effective]) ** 2
                         / np.maximum(np.diag(inverse)[effective], 1e-200))
    return result


def prune(problem, family, theta, limit, tries=3, say=print):
    """Take away coefficients, those of lowest saliency first, as long as the deviation stays below
    the limit: an eighth of them at a time while that costs nothing, as families have more
    parameters than effects; then one by one, the best of a few tries."""
    share = 8
    while True:
        before = problem.objective(family, theta, 64)
        saliency = saliencies(problem, family, theta)
        order = sorted(prunable(family, theta), key=lambda k: saliency[k])
        many = len(order) // share if share else 0
        choices = [order[:many]] if many > 1 else [[k] for k in order[:tries]]
        results = []
        for choice in choices:
            smaller, start = family, theta
            for k in sorted(choice, reverse=True):
                smaller, start = smaller.without(start, k)
            refitted = climb(problem, smaller, start, (4, 16, 64), 60)
            results.append((problem.objective(smaller, refitted, 64), smaller, refitted))
        after, smaller, refitted = min(results, key=lambda found: found[0])
        if many > 1 and after > 1.05 * before:
            share = share * 2 if many > 2 else 0
            continue
        if problem.deviation(smaller, refitted) > limit:
            refitted = climb(problem, smaller, refitted, (32, 128), 200)
        if problem.deviation(smaller, refitted) > limit:
            return family, theta
        family, theta = smaller, refitted
        say(f"pruned: {describe(problem, family, theta)}")


def polish(problem, family, theta):
    """The last per cent, on a finer grid with higher norms."""
    fine = Problem(**{**vars_of(problem), "points": 4 * problem.points})
    return climb(fine, family, theta, (64, 256, 1024), 120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pattern", help="one letter for each product: search from scratch")
    parser.add_argument("--start", metavar="NAME", help="begin with this set instead")
    parser.add_argument("--from", dest="source", default=SETS, metavar="FILE", help="its file")
    parser.add_argument("--lower", type=float, default=1e-3)
    parser.add_argument("--top", type=float, default=1.01, help="near 1 up to here (1.01)")
    parser.add_argument("--reach", type=float, default=0.0, help="in [.75, 1.25] up to here")
    parser.add_argument("--limit", type=float, help="prune while the deviation stays below this")
    parser.add_argument("--penalty", type=float, default=2e-3,
                        help="weight of the amplification of rounding errors (2e-3)")
    parser.add_argument("--seed", type=int, default=0, help="of the first random start (0)")
    parser.add_argument("--rounds", type=int, default=1, help="searches of --pool starts (1)")
    parser.add_argument("--pool", type=int, default=24, help="random starts of a search (24)")
    parser.add_argument("--points", type=int, default=1000,
                        help="of the grid; verify.py shows whether they sufficed (1000)")
    parser.add_argument("--name", default="fitted")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    if (options.pattern is None) == (options.start is None):
        parser.error("give either --pattern or --start")

    begin = time.process_time()

    def say(text):
        print(f"{time.process_time() - begin:7.1f} s  {text}", flush=True)

    problem = Problem(options.lower, options.top, options.reach, limit=options.limit or .1,
                      penalty=options.penalty, points=options.points)
    if options.pattern:
        say(f"{options.rounds} x {options.pool} starts from seed {options.seed}")
        found = [search(problem, options.pattern, options.seed + i * options.pool, options.pool,
                        say) for i in range(options.rounds)]
        family, theta = min(found, key=lambda f: problem.objective(*f, 128))
    else:
        family, theta = Family.of_program(read_sets(options.source)[options.start])
        say(f"start: {describe(problem, family, theta)}")
        theta = climb(problem, family, theta)
    say(f"fitted: {describe(problem, family, theta)}")
    if options.limit:
        family, theta = prune(problem, family, theta, options.limit, say=say)
    theta = polish(problem, family, theta)
    say(f"polished: {describe(problem, family, theta)}")
    if options.output:
        program = family.program(theta, options.name, options.lower)
        options.output.write_text(format_set(program))


if __name__ == "__main__":
    main()

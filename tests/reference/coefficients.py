"""Coefficient tables: one row (a, b, c) per step, mapping s to a s + b s^3 + c s^5.

The generators work with 80 digits, because the linear system of the exchange is
close to singular in late steps; the rows are correct to the last bit of a double.
"""
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite

import mpmath

MAX_STEPS = 64
DIGITS = 80
# Below this relative width of the interval the limit polynomial differs from the
# optimal one by less than 1e-28, while the system would eat all of the 80 digits.
NARROW = mpmath.mpf(10) ** -15

PRESETS = {
    "original": [(3.4445, -4.7750, 2.0315)],
    "quintic": [
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ],
    "polar_express": [
        (8.237312490495555, -23.157747414558198, 16.680568411445915),
        (4.082441999064835, -2.893047735332586, 0.5252849256975648),
        (3.9263479922546582, -2.8547468034765298, 0.5318022422894988),
        (3.2982187133085143, -2.424541981026706, 0.48632008358844075),
        (2.2970369434552573, -1.63662558125903, 0.4002628455953627),
        (1.8763805351440397, -1.2347896577722228, 0.35891887501668385),
        (1.8564423485617974, -1.2132449880935525, 0.3568003487825883),
        (1.8749994008682747, -1.2499988017229169, 0.3749994008546422),
    ],
    "polar_express_safer": [
        (8.156554524902461, -22.48329292557795, 15.878769915207462),
        (4.0429299351667245, -2.808917465908704, 0.5000178451051299),
        (3.8916678022926563, -2.7724841532176825, 0.5060648178503389),
        (3.285753657755658, -2.3681294933425394, 0.46449024233003117),
        (2.3005307116270983, -1.6111665557258408, 0.3833374427545273),
        (1.8631210546382593, -1.2042160621002727, 0.3421879560523383),
        (1.8382572152247512, -1.1779263289537742, 0.3396513038637379),
        (1.8749999923301852, -1.2499999836060613, 0.374999991275876),
    ],
    "polar_express_5": [
        (8.156554524902461, -22.48329292557795, 15.878769915207462),
        (4.042929935166739, -2.808917465908714, 0.5000178451051316),
        (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
        (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
        (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
    ],
    "cans": [
        (8.4703, -25.1081, 18.6293),
        (4.1828, -3.1087, 0.5806),
        (3.9619, -2.9541, 0.5630),
        (3.2866, -2.4647, 0.5074),
        (2.2737, -1.6447, 0.4162),
    ],
    "aol": [
        (4.6051, -9.6552, 5.6769),
        (4.7505, -6.0861, 2.1790),
        (2.7763, -2.3190, 0.5523),
        (2.4231, -2.2861, 0.8193),
    ],
    "cubic": [
        (3.3656576, -3.3420992, 0.0),
        (2.5744352, -1.4957376, 0.0),
        (2.5368962, -1.4312570, 0.0),
        (2.4418906, -1.2764040, 0.0),
        (2.2230472, -0.9630650, 0.0),
    ],
}


@dataclass(frozen=True)
class Generated:
    """Generated Polar Express. `rows` fixes the length of the table that is
    generated, of which the first steps are then used; None: as many as steps."""

    lower: float = 1e-3
    safety: float = 1e-2
    cushion: float = 0.02
    rows: int = None


def polynomial(row, x):
    a, b, c = row
    return ((c * x * x + b) * x * x + a) * x


def apply_table(table, x):
    """What the whole table makes of a singular value (or an array of them)."""
    for row in table:
        x = polynomial(row, x)
    return x


def _optimal_quintic(l, u):
    """The odd quintic closest to 1 in max-norm on [l, u], by Remez exchange."""
    if u - l < NARROW * u:
        return (15 / (8 * u), -10 / (8 * u**3), 3 / (8 * u**5))
    q, r, previous = (3 * l + u) / 4, (l + 3 * u) / 4, mpmath.inf
    for _ in range(100):
        system = mpmath.matrix([[x, x**3, x**5, sign]
                                for x, sign in ((l, 1), (q, -1), (r, 1), (u, -1))])
        a, b, c, error = mpmath.lu_solve(system, mpmath.matrix([1, 1, 1, 1]))
        if abs(error - previous) <= mpmath.mpf(10) ** -40 * abs(error):
            return (a, b, c)
        previous = error
        root = mpmath.sqrt(9 * b * b - 20 * a * c)
        q, r = (mpmath.sqrt((-3 * b + sign * root) / (10 * c)) for sign in (-1, 1))
        if not (mpmath.im(q) == mpmath.im(r) == 0 and l < q < r < u):
            raise ValueError(f"the exchange on [{float(l)}, {float(u)}] lost its alternation")
    raise ValueError(f"the exchange on [{float(l)}, {float(u)}] did not converge")


def _optimal_cubic(l, u):
    alpha = mpmath.sqrt(3 / (u * u + l * u + l * l))
    beta = 4 / (2 + l * u * (l + u) * alpha**3)
    return (3 * alpha * beta / 2, -(alpha**3) * beta / 2, mpmath.mpf(0))


def _check_generator(steps, lower, safety, cushion):
    check_steps(steps)
    if not (isfinite(lower) and 0 <= lower <= 1):
        raise ValueError(f"lower is {lower}: it must be in [0, 1]")
    if not (isfinite(safety) and safety >= 0):
        raise ValueError(f"safety is {safety}: it must be finite and at least 0")
    if not (isfinite(cushion) and 0 <= cushion < 1):
        raise ValueError(f"cushion is {cushion}: it must be in [0, 1)")
    if max(lower, cushion) == 0:
        raise ValueError("lower is 0: it must be above 0 without a cushion")


def _generate(steps, lower, safety, cushion, optimal):
    with mpmath.workdps(DIGITS):
        l, u, s = mpmath.mpf(lower), mpmath.mpf(1), 1 + mpmath.mpf(safety)
        floor = mpmath.mpf(cushion)
        table = []
        for step in range(steps):
            row = optimal(max(l, floor * u), u)
            if floor * u > l:
                centre = 2 / (polynomial(row, l) + polynomial(row, u))
                row = tuple(centre * x for x in row)
            if step < steps - 1:
                row = (row[0] / s, row[1] / s**3, row[2] / s**5)
            table.append(tuple(float(x) for x in row))
            l = polynomial(row, l)
            u = 2 - l
        return table


@lru_cache(maxsize=None)
def _polar_express(steps, lower, safety, cushion):
    return tuple(_generate(steps, lower, safety, cushion, _optimal_quintic))


def polar_express(steps, lower=1e-3, safety=1e-2, cushion=0.02):
    """The `steps` optimal quintics, as a list of (a, b, c)."""
    _check_generator(steps, lower, safety, cushion)
    return list(_polar_express(steps, lower, safety, cushion))


def polar_cubic(steps, lower=1e-3, safety=1e-2):
    """The `steps` optimal odd cubics; c is 0."""
    _check_generator(steps, lower, safety, 0.0)
    return _generate(steps, lower, safety, 0.0, _optimal_cubic)


def check_steps(steps):
    if not (isinstance(steps, int) and 1 <= steps <= MAX_STEPS):
        raise ValueError(f"steps is {steps}: it must be from 1 to {MAX_STEPS}")


def choose(choice, steps):
    """The table for `steps` steps of a preset name, one triple, a list of triples or
    a Generated: the first rows, the last one repeated where there are too few."""
    check_steps(steps)
    if isinstance(choice, Generated):
        rows = polar_express(choice.rows or steps, choice.lower, choice.safety, choice.cushion)
    elif isinstance(choice, str):
        if choice not in PRESETS:
            raise ValueError(f"coefficients is {choice!r}: use one of {', '.join(PRESETS)}")
        rows = PRESETS[choice]
    else:
        rows = list(choice)
        if len(rows) == 3 and all(isinstance(x, (int, float)) for x in rows):
            rows = [tuple(rows)]
    if not rows:
        raise ValueError("coefficients is an empty list")
    for row in rows:
        if len(row) != 3 or not all(isfinite(x) for x in row):
            raise ValueError(f"coefficients has the row {row}: it takes three finite numbers")
    return [tuple(rows[min(i, len(rows) - 1)]) for i in range(steps)]

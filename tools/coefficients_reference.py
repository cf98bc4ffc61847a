#!/usr/bin/env python3
"""Reference coefficients of the optimal odd polynomials, to 60 digits.

The textbook algorithm, written for clarity and independent of the library:
Remez exchange with a linear system at four nodes for the quintic, the closed
formula for the cubic, and enough guard digits that the conditioning of the
system does not matter.

    coefficients_reference.py quintic STEPS LOWER SAFETY CUSHION   print a table
    coefficients_reference.py cubic STEPS LOWER SAFETY             print a table
    coefficients_reference.py header                               print the test data

Arguments are rounded to double first, as the library receives them.
"""
import sys

from mpmath import inf, lu_solve, matrix, mp, mpf, nstr, sqrt

DIGITS = 60  # right in every result
mp.dps = 360  # the system loses about five digits per digit of closeness

# Closer than this, the limit of equal ends is right to DIGITS.
CLOSE = mpf(10) ** -(DIGITS // 2 + 5)


def optimal_quintic(l, u):
    """(a, b, c) of the odd quintic closest to 1 on [l, u]."""
    if (u - l) / u < CLOSE:
        m = (l + u) / 2
        return mpf(15) / 8 / m, mpf(-10) / 8 / m**3, mpf(3) / 8 / m**5
    q, r = (3 * l + u) / 4, (l + 3 * u) / 4
    error, previous = inf, None
    for _ in range(100):
        system = matrix([[x, x**3, x**5, sign] for x, sign in ((l, 1), (q, -1), (r, 1), (u, -1))])
        a, b, c, error = lu_solve(system, matrix([1, 1, 1, 1]))
        if previous is not None and abs(error - previous) <= abs(error) * mpf(10) ** -(DIGITS + 10):
            return a, b, c
        previous = error
        root = sqrt(9 * b**2 - 20 * a * c)
        q, r = sqrt((-3 * b - root) / (10 * c)), sqrt((-3 * b + root) / (10 * c))
    raise ArithmeticError(f"no convergence on [{nstr(l)}, {nstr(u)}]")


def optimal_cubic(l, u):
    """(a, b, 0) of the odd cubic closest to 1 on [l, u]."""
    alpha = sqrt(3 / (u**2 + l * u + l**2))
    beta = 4 / (2 + l * u * (l + u) * alpha**3)
    return mpf(3) / 2 * alpha * beta, -(alpha**3) * beta / 2, mpf(0)


def table(kind, steps, lower, safety, cushion=0.0):
    """The rows of a whole iteration."""
    l, u = mpf(lower), mpf(1)
    safety, cushion = mpf(safety), mpf(cushion)
    optimal = optimal_quintic if kind == "quintic" else optimal_cubic
    rows = []
    for step in range(steps):
        a, b, c = optimal(max(l, cushion * u), u)
        if cushion * u > l:
            ends = sum(a * x + b * x**3 + c * x**5 for x in (l, u))
            a, b, c = (2 * k / ends for k in (a, b, c))
        if step < steps - 1:
            s = 1 + safety
            a, b, c = a / s, b / s**3, c / s**5
        rows.append((a, b, c))
        l = a * l + b * l**3 + c * l**5
        u = 2 - l
    return rows


# (kind, steps, lower, safety, cushion) of the test data.
CASES = [
    ("quintic", 10, 1e-3, 1e-2, 0.02),
    ("quintic", 5, 1e-3, 2e-2, 0.02),
    ("quintic", 1, 1e-3, 1e-2, 0.02),
    ("quintic", 2, 0.5, 0.0, 0.0),
    ("quintic", 8, 1e-3, 0.0, 0.0),
    ("quintic", 8, 1e-3, 0.0, 0.5),
    ("quintic", 9, 1e-3, 1e-2, 0.0),
    ("quintic", 30, 1e-8, 0.0, 0.0),
    ("quintic", 30, 1e-8, 2e-2, 0.02),
    ("quintic", 30, 1e-8, 0.1, 0.0),
    ("quintic", 20, 1e-8, 0.1, 0.5),
    ("quintic", 14, 1e-6, 1e-3, 0.1),
    ("quintic", 12, 1e-5, 1e-9, 0.01),
    ("quintic", 12, 1e-4, 1e-6, 1e-3),
    ("quintic", 64, 1e-3, 1e-2, 0.02),
    ("quintic", 64, 1e-8, 5e-2, 0.3),
    ("quintic", 10, 0.1, 0.1, 0.2),
    ("quintic", 10, 0.1, 0.1, 0.1),
    ("quintic", 7, 0.3, 1e-4, 0.5),
    ("quintic", 7, 0.7, 1e-2, 0.5),
    ("quintic", 7, 0.9, 1e-12, 0.02),
    ("quintic", 7, 0.99, 0.0, 0.02),
    ("quintic", 7, 0.999, 1e-7, 0.0),
    ("quintic", 5, 0.999, 0.0, 0.0),
    ("quintic", 5, 0.999999, 0.0, 0.0),
    ("quintic", 4, 1.0, 1e-2, 0.02),
    ("quintic", 8, 0.0, 1e-2, 0.02),
    ("quintic", 8, 1e-40, 0.0, 0.0),
    ("quintic", 6, 0.2, 1.0, 0.0),
    ("quintic", 6, 0.2, 1e-3, 0.95),
    ("quintic", 8, 1e-3, 1e-3, 0.9999),
    ("cubic", 8, 1e-3, 1e-2, 0.0),
    ("cubic", 12, 1e-3, 0.0, 0.0),
    ("cubic", 40, 1e-8, 1e-2, 0.0),
    ("cubic", 30, 1e-8, 0.0, 0.0),
    ("cubic", 20, 1e-5, 0.1, 0.0),
    ("cubic", 64, 1e-4, 1e-6, 0.0),
    ("cubic", 6, 0.5, 1e-3, 0.0),
    ("cubic", 6, 0.999, 0.0, 0.0),
    ("cubic", 1, 1e-2, 1e-2, 0.0),
    ("cubic", 3, 1.0, 0.0, 0.0),
]


def print_header():
    print("/*")
    print(" * Reference coefficients, made by")
    print(" *     tools/coefficients_reference.py header > tests/data/polar_express_reference.h")
    print(" * with 60 digits and rounded to 20.")
    print(" */")
    print("/* clang-format off */")
    rows = []
    print("static const struct {")
    print("    bool cubic;\n    int steps;\n    double lower, safety, cushion;")
    print("} reference_cases[] = {")
    for case in CASES:
        kind, steps, lower, safety, cushion = case
        flag = "true" if kind == "cubic" else "false"
        print(f"    {{{flag}, {steps}, {lower!r}, {safety!r}, {cushion!r}}},")
        rows += table(*case)
    print("};\n\n/* The rows of all cases, `steps` of each, one case after another. */")
    print("static const double reference_rows[][3] = {")
    for row in rows:
        print("    {" + ", ".join(nstr(k, 20, min_fixed=-1, max_fixed=3) for k in row) + "},")
    print("};")


def main(arguments):
    try:
        if arguments == ["header"]:
            print_header()
            return 0
        kind, steps, *numbers = arguments
        if kind not in ("quintic", "cubic") or len(numbers) != (3 if kind == "quintic" else 2):
            raise ValueError
        rows = table(kind, int(steps), *map(float, numbers))
    except ValueError:
        print(__doc__, file=sys.stderr)
        return 2
    for row in rows:
        print(*(nstr(k, DIGITS) for k in row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

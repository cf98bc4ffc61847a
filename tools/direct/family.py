"""Families of programs: which coefficients of a program may vary, and how its polynomial and
its sensitivity to rounding change with them.

A family has one parameter for every free coefficient; coefficients that are tied, as those of
the two factors of a shifted square F (F + d I), share one. All others are 0.
"""
import numpy as np

from programs import Program, parallel

# What the factors of a product may contain besides the latest Y, R and I, by the letter that
# stands for the product in a pattern such as "SSSSSGSGSGS".
KINDS = {
    "S": "shifted square: both factors have the same latest Y and R, and differ by identity",
    "T": "shifted square with the Y before the latest too",
    "U": "shifted square with every Y",
    "G": "general: each factor has its own latest Y, R and I",
    "H": "general, and the Y before the latest too",
    "D": "general, with every Y",
}

# The singular values between which an error may be amplified: none at all, those of hard
# spectra, of Gaussian matrices divided by their norm, of rank 2 and of rank 1.
PROBES = np.array([0, 1e-3, 1e-2, .03, .06, .09, .3, .5**.5, 1])


def tied(kind):
    """The kind of shifted square with the same matrices."""
    return {"G": "S", "H": "T", "D": "U"}.get(kind, kind)


GAUSSIAN = .03, .1  # where the singular values of such matrices lie, R being small for them
HARMLESS = 20  # an amplification that matters to nobody: 1e-6 in f32


class Family:
    """slots: {(side, product, index): parameter}, side "a" or "b" and products from 1, or
    ("c", 0, index)."""

    def __init__(self, products, slots):
        self.products = products
        numbers = sorted(set(slots.values()))
        renumbered = {old: new for new, old in enumerate(numbers)}
        self.slots = {place: renumbered[k] for place, k in slots.items()}
        self.size = len(numbers)
        self.rows = {}
        for (side, j, i), k in self.slots.items():
            self.rows.setdefault((side, j), []).append((i, k))

    @classmethod
    def of_pattern(cls, pattern):
        """All coefficients that the letters of the pattern allow (KINDS)."""
        slots = {}

        def free(*places):
            number = len(set(slots.values()))
            slots.update(dict.fromkeys(places, number))

        for j, kind in enumerate(pattern, 1):
            older = {"S": [], "T": [j - 1], "U": range(2, j)}[tied(kind)]
            for i in sorted({j, 1, *(i for i in older if i > 1)}):
                if kind == tied(kind):
                    free(("a", j, i), ("b", j, i))
                else:
                    free(("a", j, i))
                    free(("b", j, i))
            free(("b", j, 0))
            if j > 2:
                free(("a", j, 0))
        for i in range(len(pattern) + 2):
            free(("c", 0, i))
        return cls(len(pattern), slots)

    @classmethod
    def of_program(cls, program):
        """(family, parameters) of a program: its nonzero coefficients, and every identity. A
        product of parallel factors becomes a shifted square, by scaling it."""
        a, b = ([list(row) for row in side] for side in (program.a, program.b))
        c, slots, values = list(program.c), {}, []

        def free(value, *places):
            slots.update(dict.fromkeys(places, len(values)))
            values.append(value)

        for j in range(1, program.products + 1):
            fa, fb = a[j - 1], b[j - 1]
            tied = parallel(fa[1:], fb[1:])
            if tied:
                ratio = fa[j] / fb[j]
                b[j - 1] = fb = [x * ratio for x in fb]
                for row in [*a[j:], *b[j:], c]:
                    row[j + 1] /= ratio
            for i in range(1, j + 1):
                if tied and fa[i] != 0:
                    free(fa[i], ("a", j, i), ("b", j, i))
                elif not tied:
                    for side, factor in (("a", fa), ("b", fb)):
                        if factor[i] != 0:
                            free(factor[i], (side, j, i))
            free(fa[0], ("a", j, 0))
            free(fb[0], ("b", j, 0))
        for i, x in enumerate(c):
            if x != 0 or i == 0:
                free(x, ("c", 0, i))
        return cls(program.products, slots), np.array(values)

    def without(self, theta, parameter):
        """(family, parameters) with one parameter less: its coefficients become 0."""
        slots = {place: k for place, k in self.slots.items() if k != parameter}
        return Family(self.products, slots), np.delete(theta, parameter)

    def program(self, theta, name="fitted", lower=1e-3):
        sides = {s: [[0.0] * (j + 1) for j in range(1, self.products + 1)] for s in "ab"}
        c = [0.0] * (self.products + 2)
        for (side, j, i), k in self.slots.items():
            (c if side == "c" else sides[side][j - 1])[i] = float(theta[k])
        return Program(name, sides["a"], sides["b"], c, lower)

    def forward(self, theta, r):
        """All Y, and the two factors of every product."""
        y, factors = [np.ones_like(r), r], []
        for j in range(1, self.products + 1):
            a, b = (sum(theta[k] * y[i] for i, k in self.rows[side, j]) for side in "ab")
            factors.append((a, b))
            y.append(a * b)
        return y, factors

    def h(self, theta, r):
        y, _ = self.forward(theta, r)
        return sum(theta[k] * y[i] for i, k in self.rows["c", 0])

    def jacobian(self, theta, r):
        """h and its derivatives by every parameter, one row each: the chain rule from the sum
        back to the first product, which costs one multiplication per coefficient."""
        y, factors = self.forward(theta, r)
        rows = np.zeros((self.size, len(r)))
        by_y = [0.0] * (self.products + 2)  # dh / dY
        h = 0.0
        for i, k in self.rows["c", 0]:
            h = h + theta[k] * y[i]
            rows[k] += y[i]
            by_y[i] = by_y[i] + theta[k]
        for j in range(self.products, 0, -1):
            a, b = factors[j - 1]
            for side, by_factor in (("a", by_y[j + 1] * b), ("b", by_y[j + 1] * a)):
                for i, k in self.rows[side, j]:
                    rows[k] += by_factor * y[i]
                    by_y[i] = by_y[i] + by_factor * theta[k]
        return h, rows

    def amplification(self, theta, probes=PROBES, paths=3, lower=1e-3, derivatives=True):
        """How errors grow on the way to the result, and the derivatives by every parameter:
        (values, rows), or values alone.

        An error E in a matrix Y, seen between eigenvectors i and j, goes through a product of
        factors A and B as dA_ij B_j + A_i dB_ij, or with i and j exchanged: mirroring one
        triangle makes a mixture of the two, other in every product. Some random paths are
        followed to the sum and through H X, which gives a number for every Y, pair and path. It
        is multiplied by the size of the error that computing Y makes, which is that of the terms
        of the factors before they cancel, and divided by HARMLESS plus what the same error in R
        would do to any such function: h(r) = 1/sigma has the divided difference
        1/(si sj (si + sj)). Nothing excuses an error in the range of Gaussian matrices.
        """
        def variable(k):
            return Dual.variable(theta[k], k, self.size) if derivatives else theta[k]

        def constant(values):
            return Dual(values, np.zeros((self.size, 1))) if derivatives else values

        def total(terms):
            return sum(terms[1:], terms[0])

        r = probes * probes
        y, factors, sizes = [constant(np.ones_like(r)), constant(r)], [], []
        for j in range(1, self.products + 1):
            terms = [[variable(k) * y[i] for i, k in self.rows[side, j]] for side in "ab"]
            a, b = map(total, terms)
            spread_a, spread_b = (total([root_mean_square(t) for t in side]) for side in terms)
            sizes.append(spread_a * root_mean_square(b) + spread_b * root_mean_square(a))
            factors.append((a, b))
            y.append(a * b)
        pairs = np.indices((len(r), len(r), paths)).reshape(3, -1)
        exchanged = np.random.default_rng(0).integers(0, 2, (self.products, paths))
        floor = np.maximum(probes, lower)[pairs[:2]]
        excuse = 1 / (floor[0] * (floor[0] + floor[1]))
        excuse[((floor >= GAUSSIAN[0]) & (floor <= GAUSSIAN[1])).all(axis=0)] = 0
        unit = probes[pairs[1]] / (HARMLESS + excuse)
        by_y = {i: variable(k) for i, k in self.rows["c", 0]}
        found = []
        for j in range(self.products, 0, -1):
            error = by_y.get(j + 1)
            if error is None:
                continue
            found.append(error * sizes[j - 1] * unit)
            a, b = factors[j - 1]
            first, second = np.where(exchanged[j - 1, pairs[2]], pairs[1::-1], pairs[:2])
            for side, other in (("a", b[second]), ("b", a[first])):
                carried = error * other
                for i, k in self.rows[side, j]:
                    if i > 1:
                        step = carried * variable(k)
                        by_y[i] = by_y[i] + step if i in by_y else step
        width = pairs.shape[1]
        if not derivatives:
            return np.concatenate([np.broadcast_to(f, width) for f in found])
        return (np.concatenate([np.broadcast_to(f.value, width) for f in found]),
                np.concatenate([np.broadcast_to(f.rows, (self.size, width)) for f in found], 1))


class Dual:
    """Forward-mode derivatives: values, and one row of derivatives for each parameter."""

    def __init__(self, value, rows):
        self.value, self.rows = value, rows

    @classmethod
    def variable(cls, value, index, size):
        rows = np.zeros((size, 1))
        rows[index] = 1
        return cls(np.array([value]), rows)

    def __add__(self, other):
        return Dual(self.value + other.value, self.rows + other.rows)

    def __mul__(self, other):
        if not isinstance(other, Dual):
            return Dual(self.value * other, self.rows * other)
        return Dual(self.value * other.value, self.rows * other.value + other.rows * self.value)

    def __getitem__(self, index):
        return Dual(self.value[index], self.rows[:, index] if self.rows.shape[1] > 1 else self.rows)


def root_mean_square(x):
    if not isinstance(x, Dual):
        return np.sqrt(np.mean(x**2)) + 1e-300
    root = np.sqrt(np.mean(x.value**2, keepdims=True)) + 1e-300
    return Dual(root, np.mean(x.rows * x.value, 1, keepdims=True) / root)

"""Programs of the direct form: reading, writing, counting and evaluating them.

A program with K products makes the polynomial h of r = sigma^2 from

    Y0 = 1, Y1 = r
    Y(j+1) = (sum_i a_j[i] Y_i) (sum_i b_j[i] Y_i),   i = 0..j,   j = 1..K
    h = sum_i c[i] Y_i,   i = 0..K+1

and the direct form sends every singular value sigma to sigma h(sigma^2). The same code
evaluates numbers of any kind that add and multiply: floats, arrays of them, mpmath's.

Programs are written in text (sets.txt): a line `# NAME K=11`, then lines `a1:`, `b1:`,
..., `c:` with the coefficients in the order I, R, Y2, Y3, ...; 0 means absent.
"""
import pathlib
import re
from dataclasses import dataclass

SETS = pathlib.Path(__file__).resolve().parent / "sets.txt"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "src" / "coefficients" / "direct_sets.c"


@dataclass
class Program:
    """a[j], b[j]: the two factors of product j + 1, with j + 2 coefficients each; c: the sum.
    `lower` is the end of the interval [lower, 1] that the program is for."""

    name: str
    a: list
    b: list
    c: list
    lower: float = 1e-3

    def __post_init__(self):
        for j in range(self.products):
            if not len(self.a[j]) == len(self.b[j]) == j + 2:
                raise ValueError(f"{self.name}: the factors of product {j + 1} must have {j + 2} "
                                 f"coefficients, not {len(self.a[j])} and {len(self.b[j])}")
        if len(self.b) != self.products or len(self.c) != self.products + 2:
            raise ValueError(f"{self.name}: {self.products} products need {self.products} pairs "
                             f"of factors and {self.products + 2} coefficients c, "
                             f"not {len(self.b)} and {len(self.c)}")

    @property
    def products(self):
        return len(self.a)

    def flat(self):
        """All coefficients, in the order of the C table."""
        factors = [x for pair in zip(self.a, self.b) for factor in pair for x in factor]
        return factors + list(self.c)

    def map(self, convert):
        """The same program with every coefficient converted."""
        rows = [[[convert(x) for x in row] for row in side] for side in (self.a, self.b)]
        return Program(self.name, *rows, [convert(x) for x in self.c], self.lower)

    def powers(self, r):
        """Y0, ..., Y(K+1) at r."""
        y = [r * 0 + 1, r]
        for a, b in zip(self.a, self.b):
            y.append(combine(a, y) * combine(b, y))
        return y

    def h(self, r):
        return combine(self.c, self.powers(r))

    def degree(self):
        """The degree of h in r, at most 2^K."""
        degrees = [0, 1]
        for a, b in zip(self.a, self.b):
            degrees.append(sum(max(d for x, d in zip(f, degrees) if x != 0) for f in (a, b)))
        return max(d for x, d in zip(self.c, degrees) if x != 0)

    def terms(self):
        """How many matrices are read, scaled and added to form all factors and the sum. The
        identity is free, and factors that differ by scale and identity only count once."""
        count = sum(x != 0 for x in self.c[1:])
        for a, b in zip(self.a, self.b):
            count += sum(x != 0 for x in a[1:])
            if not parallel(a[1:], b[1:]):
                count += sum(x != 0 for x in b[1:])
        return count


def combine(coefficients, values):
    """The sum of coefficient times value, absent ones left out."""
    total = values[0] * coefficients[0]
    for x, y in zip(coefficients[1:], values[1:]):
        if x != 0:
            total = total + x * y
    return total


def parallel(a, b):
    """Whether one factor is a multiple of the other, to the last bit but a few."""
    return all(abs(x * z - y * w) <= 8 * 2.0**-52 * abs(x * z)
               for x, y in zip(a, b) for w, z in zip(a, b))


def from_flat(name, products, numbers, lower=1e-3):
    numbers, sides = list(numbers), ([], [])
    for j in range(products):
        for side in sides:
            side.append(numbers[: j + 2])
            numbers = numbers[j + 2:]
    return Program(name, *sides, numbers, lower)


def read_sets(path=SETS):
    """The programs of a text file, by name, in its order."""
    sets = {}
    for block in re.split(r"^(?=#)", pathlib.Path(path).read_text(), flags=re.M):
        if not block.strip():
            continue
        head, *lines = block.strip().splitlines()
        fields = dict(field.split("=") for field in head[1:].split()[1:])
        rows = dict(line.split(":") for line in lines)
        read = {key: [float(x) for x in row.split()] for key, row in rows.items()}
        products = int(fields["K"])
        a, b = ([read[f"{side}{j}"] for j in range(1, products + 1)] for side in "ab")
        name = head[1:].split()[0]
        sets[name] = Program(name, a, b, read["c"], float(fields.get("lower", 1e-3)))
    return sets


def format_set(program):
    """A program in the format of sets.txt, every number to its last bit."""
    lower = "" if program.lower == 1e-3 else f" lower={program.lower:g}"
    lines = [f"# {program.name} K={program.products}{lower}"]
    for j, (a, b) in enumerate(zip(program.a, program.b), 1):
        lines += [f"a{j}: {digits(a)}", f"b{j}: {digits(b)}"]
    return "\n".join([*lines, f"c: {digits(program.c)}"]) + "\n"


def digits(row):
    return " ".join("0" if x == 0 else f"{x:.17g}" for x in row)


def read_table(path=TABLE):
    """What the C table holds: by name, the program and the claimed deviation and edge."""
    text = pathlib.Path(path).read_text()
    arrays = {name: [float(x) for x in re.sub(r"/\*.*?\*/", "", body).replace(",", " ").split()]
              for name, body in re.findall(r"double (\w+)\[\] = \{(.*?)\n\};", text, re.S)}
    rows = re.findall(r'\{"(\w+)", (\d+), ([\d.e+-]+), ([\d.e+-]+), (\w+)\}', text)
    return {name: (from_flat(name, int(products), arrays[array]), float(deviation), float(edge))
            for name, products, deviation, edge, array in rows}


# The five steps of `polar_express_5`, which the sets are compared with.
QUINTICS = [
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
]


class Quintics:
    """Quintic steps as one polynomial h, in the Gram form: per step one product for the square
    and, except in the first, one for Q; two more for the next R, except in the last."""

    def __init__(self, name="five quintics", steps=tuple(QUINTICS), lower=1e-3):
        self.name, self.steps, self.lower = name, steps, lower

    @property
    def products(self):
        return 4 * len(self.steps) - 3

    def map(self, convert):
        return Quintics(self.name, [[convert(x) for x in row] for row in self.steps], self.lower)

    def h(self, r):
        q = 1
        for a, b, c in self.steps:
            factor = a + b * r + c * r * r
            q, r = q * factor, r * factor * factor
        return q

    def degree(self):
        return (5 ** len(self.steps) - 1) // 2

    def terms(self):
        """Per step b R and c R^2; a Q except in the first; a R and a P except in the last."""
        return 5 * len(self.steps) - 3

#!/usr/bin/env python3
"""Makes src/coefficients/direct_sets.c from sets.txt: the coefficients to the last bit, and of
each set the measured deviation (rounded up) and edge (rounded down).

    make_sets.py [NAME...] [--check] [--output FILE]

Without names all sets for [1e-3, 1] are taken, in the order of the file. --check writes
nothing and fails if the C file is not what would be written.
"""
import argparse
import math
import pathlib
import sys
import textwrap

from programs import SETS, TABLE, read_sets
from verify import measure

LOWER = 1e-3

HEAD = """\
/*
 * direct_sets.c: the coefficients of the direct form: straight-line programs, found by
 * minimising the largest |sigma h(sigma^2) - 1| over [1e-3, 1.01] and then pruning.
 * Made from tools/direct/sets.txt by tools/direct/make_sets.py; change it there.
 * tools/direct/verify.py checks the figures of each set; docs/direct.md explains them.
 */
#include "coefficients/direct.h"

/* clang-format off */
"""

TAIL = """\
};
/* clang-format on */

const mu_direct_set *mu_direct_set_at(size_t index)
{
    return index < sizeof sets / sizeof sets[0] ? &sets[index] : NULL;
}
"""


def coefficient_array(program):
    """One line of C per factor, wrapped."""
    rows = []
    for j, (a, b) in enumerate(zip(program.a, program.b), 1):
        rows += [(f"a{j}", a), (f"b{j}", b)]
    lines = [f"static const double {program.name.lower()}[] = {{"]
    for label, row in [*rows, ("c", program.c)]:
        numbers = ", ".join("0" if x == 0 else f"{x:.17g}" for x in row)
        lines += textwrap.wrap(f"/* {label} */ {numbers},", 96, initial_indent="    ",
                               subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([*lines, "};", ""])


def c_text(programs):
    """The whole C file."""
    arrays = "\n".join(coefficient_array(program) for program in programs)
    rows = []
    for program in programs:
        found = measure(program)
        deviation = math.ceil(float(found.deviation) * 1e6) / 1e6
        edge = math.floor(float(found.edge) * 1e4) / 1e4
        rows.append(f'    {{"{program.name}", {program.products}, {deviation:.6f}, {edge:.4f}, '
                    f"{program.name.lower()}}},\n")
    return f"{HEAD}{arrays}\nstatic const mu_direct_set sets[] = {{\n{''.join(rows)}{TAIL}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="sets to take")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--output", default=TABLE, type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    sets = read_sets()
    for name in options.names:
        if name not in sets:
            parser.error(f"{SETS.name} has no set {name}; it has {', '.join(sets)}")
    names = options.names or [name for name, p in sets.items() if p.lower == LOWER]
    text = c_text([sets[name] for name in names])
    if not options.check:
        options.output.write_text(text)
    elif not options.output.exists() or options.output.read_text() != text:
        sys.exit(f"{options.output} is not what {SETS.name} gives: run tools/direct/make_sets.py")


if __name__ == "__main__":
    main()

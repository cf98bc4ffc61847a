#!/usr/bin/env python3
"""Draws the figures of docs/direct.md: direct-deviation.svg and direct-products.svg, in docs/.

    plot.py [DIRECTORY]
"""
import pathlib
import sys

import numpy as np

from programs import ROOT, SETS, Quintics, read_sets
from remez import best_deviation
from verify import measure

sys.path.append(str(ROOT / "tools"))
from coefficients_reference import table  # noqa: E402

INK, FAINT, BAND = "#333", "#ccc", "#e8f0e4"
QUINTIC_COLOUR, SPARSE_COLOUR, DENSE_COLOUR, BOUND_COLOUR = "#b5532a", "#2a6fb5", "#7a4fa3", "#777"
SHOWN = ("five quintics", "P11", "P11c", "P12w", "S12")


class Figure:
    """A drawing of a given size; the last thing drawn is on top."""

    def __init__(self, width, height, title):
        self.size = width, height
        self.parts = [f"<title>{title}</title>",
                      f'<rect width="{width}" height="{height}" fill="white"/>']

    def line(self, x1, y1, x2, y2, colour=FAINT, width=1.0, dash=""):
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke="{colour}" stroke-width="{width}"{extra}/>')

    def curve(self, xs, ys, colour, width=1.2, dash=""):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys))
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" '
                          f'stroke-width="{width}" stroke-linejoin="round"{extra}/>')

    def box(self, x, y, width, height, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                          f'height="{height:.1f}" fill="{colour}"/>')

    def dot(self, x, y, colour):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>')

    def text(self, x, y, text, anchor="start", colour=INK, size=13, weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" '
                          f'font-size="{size}" font-weight="{weight}">{text}</text>')

    def save(self, path):
        width, height = self.size
        body = "\n".join(self.parts)
        path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
                        f'height="{height}" viewBox="0 0 {width} {height}" '
                        f'font-family="sans-serif">\n{body}\n</svg>\n')


def colour_of(name):
    """Programs whose factors combine more than the latest Y, R and I have their own."""
    return DENSE_COLOUR if name.startswith(("S", "(")) else SPARSE_COLOUR


def outline(values, columns):
    """A curve with more oscillations than pixels, as its lowest and highest in every column."""
    parts = np.array_split(values, columns)
    return [v for part in parts for v in ((part.min(), part.max()) if part.argmin() < part.argmax()
                                          else (part.max(), part.min()))]


def draw_deviation(path):
    sets = {"five quintics": Quintics(), **read_sets()}
    left, width, row, top = 62, 660, 130, 34
    figure = Figure(left + width + 20, top + row * len(SHOWN) + 44,
                    "Deviation from 1 over the singular value")
    figure.text(left, 20, "What becomes of a singular value σ: σh(σ²) − 1", weight="bold")
    low, high, tall = 7e-4, 1.012, .18

    def x(sigma):
        return left + width * np.log(sigma / low) / np.log(high / low)

    for index, name in enumerate(SHOWN):
        program = sets[name]
        middle = top + row * (index + .5)

        def y(value):
            return middle - value / tall * (row / 2 - 8)

        found = float(measure(program).deviation)
        figure.box(x(1e-3), y(found), x(1.0) - x(1e-3), y(-found) - y(found), BAND)
        for value in (-.1, 0, .1):
            figure.line(left, y(value), left + width, y(value))
            figure.text(left - 6, y(value) + 4, f"{value:+.1f}" if value else "0", "end", size=11)
        for sigma in (1e-3, 1e-2, .1, 1):
            figure.line(x(sigma), middle - row / 2 + 6, x(sigma), middle + row / 2 - 6)
        sigma = np.geomspace(low, high, 120 * width)
        values = np.clip(sigma * program.h(sigma**2) - 1, -tall, tall)
        places = np.repeat(left + (np.arange(width) + .5), 2)
        colour = QUINTIC_COLOUR if isinstance(program, Quintics) else colour_of(name)
        figure.curve(places, [y(v) for v in outline(values, width)], colour)
        figure.text(left + width - 4, middle - row / 2 + 16,
                    f"{name}: {program.products} products, within {found:.2g}", "end", colour,
                    weight="bold")
    for sigma in (1e-3, 1e-2, .1, 1):
        figure.text(x(sigma), top + row * len(SHOWN) + 12, f"{sigma:g}", "middle", size=12)
    figure.text(left + width / 2, top + row * len(SHOWN) + 32, "σ", "middle")
    figure.save(path)


def draw_products(path):
    left, top, width, height = 66, 40, 640, 420
    figure = Figure(left + width + 30, top + height + 50, "Products against deviation")
    figure.text(left, 22, "Symmetric products spent, and the deviation on [1e-3, 1]",
                weight="bold")
    first, last, low, high = 7.5, 22.5, .0015, 1.0

    def x(products):
        return left + width * (products - first) / (last - first)

    def y(deviation):
        return top + height * np.log(high / deviation) / np.log(high / low)

    for products in range(8, 23):
        figure.line(x(products), top, x(products), top + height, "#eee")
        figure.text(x(products), top + height + 18, products, "middle", size=12)
    for deviation in (.002, .005, .01, .02, .05, .1, .2, .5, 1):
        figure.line(left, y(deviation), left + width, y(deviation), "#eee")
        figure.text(left - 8, y(deviation) + 4, f"{deviation:g}", "end", size=12)
    figure.text(left + width / 2, top + height + 40, "products", "middle")

    bound = {k: best_deviation(2**k, 1e-3)[0] for k in range(8, 12)}
    figure.curve([x(k) for k in bound], [y(d) for d in bound.values()], BOUND_COLOUR, 1.5, "5 4")
    for k, d in bound.items():
        figure.line(x(k) - 7, y(d), x(k) + 7, y(d), BOUND_COLOUR, 2)
    for line, text in enumerate(("no polynomial", "of degree 2ᴷ", "is better")):
        figure.text(x(8) - 12, y(.02) + 18 * line, text, colour=BOUND_COLOUR)

    # The generator's quintics for exactly so many steps, with the safety of the five.
    quintics = {}
    for steps in (3, 4, 5, 6):
        rows = [[float(v) for v in row] for row in table("quintic", steps, 1e-3, .02, .02)]
        program = Quintics(steps=rows)
        quintics[program.products] = float(measure(program).deviation)
    figure.curve([x(k) for k in quintics], [y(d) for d in quintics.values()], QUINTIC_COLOUR)
    for t, (k, d) in zip((3, 4, 5, 6), quintics.items()):
        figure.dot(x(k), y(d), QUINTIC_COLOUR)
        figure.text(x(k) + 9, y(d) - 6, f"{t} quintics" if t < 6 else "6", colour=QUINTIC_COLOUR)
    labels = {}
    candidates = read_sets(SETS.with_name("candidates.txt"))
    for name, program in {**read_sets(), **candidates}.items():
        if program.lower != 1e-3:
            continue
        found = float(measure(program).deviation)
        name = f"({name})" if name in candidates else name
        figure.dot(x(program.products), y(found), colour_of(name))
        same = [n for n, (k, d) in labels.items()
                if k == program.products and abs(np.log(d / found)) < .12]
        if same:  # too close to have a line of its own
            labels[", ".join([*same, name])] = labels.pop(same[0])
        else:
            labels[name] = program.products, found
    for name, (k, d) in labels.items():
        if name.startswith("("):
            figure.text(x(k), y(d) - 9, name, "middle", colour_of(name))
        elif any(other == k + 1 and abs(np.log(e / d)) < .12 for other, e in labels.values()):
            figure.text(x(k) + 5, y(d) + 18, name, colour=colour_of(name))
        else:
            figure.text(x(k) + 9, y(d) + 4, name, colour=colour_of(name))
    figure.save(path)


def main():
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    draw_deviation(directory / "direct-deviation.svg")
    draw_products(directory / "direct-products.svg")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Page and chart of predicted scaling, from what `muonium bench --cores LIST --json` prints.

    muonium bench --cores 1,2,8,16,32,64,128 --json > cores.json
    bench/cores_chart.py cores.json --machine "AMD EPYC" --name cores-amd-epyc --save

Without --save it prints the page. With it, NAME.json, NAME.md and NAME.svg go to bench/results, or to
the directory that is given. section() and picture() are for other pages.
"""

import argparse
import json
from pathlib import Path
from xml.sax.saxutils import escape

RESULTS = Path(__file__).resolve().parent / "results"

# What the schedule is meant to reach: model, cores, efficiency in per cent.
TARGETS = (
    ("GPT-2 124M", 8, 95), ("GPT-2 124M", 32, 88), ("GPT-2 124M", 64, 80), ("GPT-2 124M", 128, 65),
    ("GPT-2 1.5B", 64, 90), ("Llama 7B", 64, 90), ("1024 x 1024", 8, 75), ("1024 x 1024", 16, 55),
    ("4096 x 4096", 32, 85),
)
COLOURS = ("#1b6ca8", "#c0392b", "#1e8449", "#7d3c98", "#b9770e", "#34495e")


def models_of(found):
    """The models in order, each with its rows by the number of cores."""
    models = {}
    for row in found["steps"]:
        models.setdefault(row["model"], {})[row["cores"]] = row
    return models


def targets_table(found):
    models = models_of(found)
    lines = ["| step | cores | target | predicted | limited by |", "|---|---|---|---|---|"]
    for model, cores, target in TARGETS:
        row = models.get(model, {}).get(cores)
        if row:
            share = 100 * row["efficiency"]
            met = "" if share >= target else ", missed"
            lines.append(f"| {model} | {cores} | {target} % | {share:.0f} %{met} | {row['limit']} |")
    return lines


def validation_table(found):
    lines = ["| step | cores | measured | difference of the prediction | validated |",
             "|---|---|---|---|---|"]
    for row in found["steps"]:
        if "measured" in row:
            lines.append(f"| {row['model']} | {row['cores']} | {1e3 * row['measured']:.3g} ms | "
                         f"{100 * row['difference']:+.1f} % | {'yes' if row['validated'] else 'no'} |")
    return lines


def section(found):
    """The lines of a section of a page, in Markdown."""
    models = models_of(found)
    cores = sorted({count for rows in models.values() for count in rows})
    machine = found["machine"]
    lines = ["Predicted efficiency: the time on one core, over P times the time on P cores.", "",
             "| step | " + " | ".join(map(str, cores)) + " |", "|---" * (len(cores) + 1) + "|"]
    for model, rows in models.items():
        cells = (f"{100 * rows[count]['efficiency']:.0f} %" if count in rows else "" for count in cores)
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    targets = targets_table(found)
    if len(targets) > 2:
        lines += ["", *targets]
    lines += ["", "Predictions beside measurements on this machine, in turns; within 10 % is valid:", "",
              *validation_table(found), "",
              f"A waiting worker starts {1e6 * machine['handover']:.2f} µs after the run, each further one "
              f"{1e9 * machine['per_worker']:.0f} ns later; from sleep after "
              f"{1e6 * machine['wakeup']:.0f} µs and {1e6 * machine['per_sleeper']:.1f} µs."]
    for row in found["twice_the_threads"]:
        lines.append(f"{row['model']} with {2 * row['threads']} threads on {row['threads']} CPUs takes "
                     f"{row['ratio_of_twice']:.2f} times as long as with {row['threads']}.")
    return lines


def picture(found, machine):
    """Efficiency over cores, a line for each model; a dot for each target."""
    models = models_of(found)
    cores = sorted({count for rows in models.values() for count in rows})
    width, height, left, top, inner, tall = 760, 430, 64, 62, 540, 300

    def x_of(count):
        return left + inner * cores.index(count) / max(len(cores) - 1, 1)

    def y_of(share):
        return top + tall * (1 - share)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="13">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="24" font-size="17">Predicted efficiency of a step by cores</text>',
           f'<text x="{left}" y="43" fill="#555">pieces timed on one core of {escape(machine)}; '
           'circles are targets</text>']
    for percent in range(0, 101, 20):
        y = y_of(percent / 100)
        out += [f'<line x1="{left}" x2="{left + inner}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
                f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>']
    for count in cores:
        out.append(f'<text x="{x_of(count):.1f}" y="{top + tall + 20}" '
                   f'text-anchor="middle">{count}</text>')
    out.append(f'<text x="{left + inner / 2}" y="{top + tall + 42}" text-anchor="middle">cores</text>')
    labels = []
    for (model, rows), colour in zip(models.items(), COLOURS):
        points = " ".join(f"{x_of(count):.1f},{y_of(rows[count]['efficiency']):.1f}"
                          for count in cores if count in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
        out += [f'<circle cx="{x_of(count):.1f}" cy="{y_of(target / 100):.1f}" r="4" fill="white" '
                f'stroke="{colour}" stroke-width="1.6"/>'
                for name, count, target in TARGETS if name == model and count in cores]
        labels.append([y_of(rows[max(rows)]["efficiency"]), model, colour])
    labels.sort()
    for above, below in zip(labels, labels[1:]):
        below[0] = max(below[0], above[0] + 17)
    for y, model, colour in labels:
        out.append(f'<text x="{left + inner + 10}" y="{y + 4:.1f}" fill="{colour}">{escape(model)}</text>')
    return "\n".join([*out, "</svg>", ""])


def page(found, machine, note):
    return "\n".join([f"# Many cores, predicted from one core of {machine}", "",
                      *([note, ""] if note else []), *section(found), "",
                      "docs/performance.md explains the model.", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("json", type=Path, help="what `muonium bench --cores LIST --json` printed")
    parser.add_argument("--machine", default="this machine", help="its name")
    parser.add_argument("--name", default="cores", help="name of the files")
    parser.add_argument("--note", default="", help="a sentence about the run, for the page")
    parser.add_argument("--save", type=Path, nargs="?", const=RESULTS, metavar="DIRECTORY")
    options = parser.parse_args()
    found = json.loads(options.json.read_text())
    text = page(found, options.machine, options.note)
    if not options.save:
        print(text)
        return
    options.save.mkdir(parents=True, exist_ok=True)
    (options.save / f"{options.name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.save / f"{options.name}.md").write_text(text)
    (options.save / f"{options.name}.svg").write_text(picture(found, options.machine))
    print(f"wrote {options.save / options.name}.json, .md and .svg")


if __name__ == "__main__":
    main()

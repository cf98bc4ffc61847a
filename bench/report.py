#!/usr/bin/env python3
"""One page on the speed of this machine: every product and orthogonalisation beside its peers.

    bench/report.py COMMAND [--output DIRECTORY] [--name NAME] [--seconds S] [--rounds N]
                    [--torch] [--quick]

COMMAND is the built `muonium`. Runs `muonium bench` as it is, on one thread, and beside every
CBLAS library that is installed (OpenBLAS also forced to each of its kernels that this CPU can
run), with the AVX2 kernels where better ones were chosen, and five steps in NumPy if this
Python has it; with --torch, bench/python_step.py too. Writes NAME.json, NAME.md and NAME.svg
(percent of peak over size) into the directory, bench/results by default, and prints the page.
Run it on an otherwise idle machine; --quick is for trying it out.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES = (32, 64, 128, 256, 512, 1024, 2048)
FORMS = ("stored in bf16", "stored in f16", "standard", "gram", "direct P11", "direct P12",
         "rounded to bf16")
PRODUCTS = ("gram", "symmul", "apply", "cblas_ssyrk", "cblas_sgemm")
COLOURS = dict(zip(PRODUCTS, ("#0072b2", "#d55e00", "#009e73", "#999999", "#555555")))
LIBRARIES = ("libopenblas.so.0", "libblis.so.4", "libmkl_rt.so", "libmkl_rt.so.2")
IN_NUMPY = ((512, 512), (1024, 1024), (768, 3072))
CORES = {"Haswell": "avx2", "Zen": "avx2", "SkylakeX": "avx512f"}  # what each needs


# ---- running ----

def bench(command, *arguments, rounds=1, **environment):
    """The JSON of `muonium bench`, of every figure the best of so many runs."""
    runs = []
    for _ in range(rounds):
        done = subprocess.run([command, "bench", "--json", *arguments], check=True, text=True,
                              capture_output=True, env={**os.environ, **environment})
        runs.append(json.loads(done.stdout))
    return best_of(runs)


def best_of(runs):
    """One run with the best time of each row, shares taken of the best peak and bandwidth."""
    best = {**runs[0], "peak_gflops": max(run["peak_gflops"] for run in runs),
            "copy_gbps": max(run["copy_gbps"] for run in runs)}
    best["results"] = [dict(min(rows, key=lambda row: row["seconds"]))
                       for rows in zip(*(run["results"] for run in runs))]
    for row in best["results"]:
        bound = 0
        for rate, limit, share in (("gflops", "peak_gflops", "percent_of_peak"),
                                   ("gbps", "copy_gbps", "percent_of_copy")):
            if rate in row:
                row[share] = 100 * row[rate] / best[limit]
                bound += row[share]
        if "percent_of_bound" in row:
            row["percent_of_bound"] = bound
    for trip, extreme in (("nearest_round_trip_ns", min), ("farthest_round_trip_ns", max)):
        if all(trip in run for run in runs):
            best[trip] = extreme(run[trip] for run in runs)
    overheads = [run["step_overhead_percent"] for run in runs if "step_overhead_percent" in run]
    if overheads:
        best["step_overhead_percent"] = min(overheads)
    del best["comparisons"]  # the page makes them of the best
    return best


def machine():
    """The processor as the system names it, its features, and how many CPUs we may use."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", text)
    flags = re.search(r"flags\s*: (.*)", text)
    return (model.group(1) if model else platform.processor() or platform.machine(),
            set(flags.group(1).split()) if flags else set(), len(os.sched_getaffinity(0)))


def peers(command, flags):
    """Name and environment of every CBLAS that can be loaded."""
    for library in LIBRARIES:
        found = {"MUONIUM_BENCH_BLAS": library}
        if not bench(command, "--shapes=8x8", "--seconds=0", **found)["peer"]:
            continue
        yield library, found
        if "openblas" in library:
            for core, need in CORES.items():
                if need in flags:
                    yield f"{library} as {core}", {**found, "OPENBLAS_CORETYPE": core}


def steps_in_numpy(shapes, seconds):
    """Seconds that five quintics take as they are usually written, by shape; None without NumPy."""
    try:
        import numpy
    except ImportError:
        return None
    def five_steps(x):
        x = x / numpy.linalg.norm(x)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
        return x
    found = []
    for m, n in shapes:
        x = numpy.random.default_rng(0).standard_normal((m, n), dtype="float32")
        best, end = float("inf"), time.perf_counter() + seconds
        while best == float("inf") or time.perf_counter() < end:
            begin = time.perf_counter()
            five_steps(x)
            best = min(best, time.perf_counter() - begin)
        found.append({"m": m, "n": n, "seconds": best})
    return {"version": numpy.__version__, "results": found}


def measure(options):
    model, flags, cpus = machine()
    sizes = SIZES[1:4] if options.quick else SIZES
    squares = "--shapes=" + ",".join(f"{m}x{m}" for m in sizes)
    seconds, rounds = f"--seconds={options.seconds}", options.rounds
    found = {"machine": model, "cpus": cpus, "system": platform.platform()}
    whole = [squares] if options.quick else ["--gpt2"]
    found["all_threads"] = bench(options.command, seconds, "--forms", *whole, rounds=rounds)
    found["products"] = bench(options.command, seconds, squares, rounds=rounds)
    found["one_thread"] = bench(options.command, seconds, squares, "--threads=1", rounds=rounds,
                                OPENBLAS_NUM_THREADS="1")
    if found["products"]["kernel"].startswith("avx512"):
        found["avx2"] = bench(options.command, seconds, squares, rounds=rounds, MUONIUM_CPU="avx2")
    found["peers"] = {name: bench(options.command, seconds, squares, rounds=rounds, **environment)
                      for name, environment in peers(options.command, flags)}
    if not options.quick:
        found["numpy"] = steps_in_numpy(IN_NUMPY, 5 * options.seconds)
    if options.torch:
        found["torch"] = subprocess.run(
            [sys.executable, str(HERE / "python_step.py")], check=True, text=True,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parent / "python")}).stdout
    return found


# ---- the page ----

def percent(run, name, m):
    for row in run["results"]:
        if row["name"] == name and (row["m"], row["n"], row["batch"]) == (m, m, 1):
            return row["percent_of_peak"]
    return None


def shape_of(row):
    matrix = f"{row['m']}×{row['n']}"
    return matrix if row["batch"] == 1 else f"{row['batch']} × {matrix}"


def products_table(runs):
    """Percent of peak by size; `runs` has the run of each heading."""
    names = {"gram": "gram", "symmul": "symmul", "apply": "apply", "cblas_ssyrk": "ssyrk",
             "cblas_sgemm": "sgemm"}
    columns = [(heading, run, name) for heading, run in runs.items() for name in PRODUCTS
               if (name in ("gram", "symmul", "apply")) == heading.startswith("Muonium")]
    lines = ["| m = n | " + " | ".join(f"{names[name]}, {heading}" for heading, _, name in columns)
             + " |", "|---" * (len(columns) + 1) + "|"]
    sizes = sorted({row["m"] for row in runs["Muonium"]["results"] if row["name"] == "gram"})
    for m in sizes:
        values = [percent(run, name, m) for _, run, name in columns]
        lines.append(f"| {m} | " + " | ".join("–" if v is None else f"{v:.0f} %" for v in values)
                     + " |")
    return lines


def orthogonalize_table(run):
    """Whole orthogonalisations: each form, and how many times as fast as others."""
    shapes = {}
    for row in run["results"]:
        name = row["name"].strip()
        if name in FORMS or name in ("orthogonalize", "plain cblas"):
            if row["name"] != "gram":  # the product, not the form
                shapes.setdefault(shape_of(row), {})[name] = row
    headings = ["orthogonalize", *FORMS, "plain cblas"]
    lines = ["| shape | " + " | ".join(f"{h}, ms" for h in headings)
             + " | % of peak | × quintics | × plain cblas |",
             "|---" * (len(headings) + 4) + "|"]
    for shape, rows in shapes.items():
        time = {h: rows[h]["seconds"] for h in headings if h in rows}
        ours = time["orthogonalize"]
        quintics = [time[h] for h in ("standard", "gram") if h in time]
        lines.append(
            f"| {shape} | "
            + " | ".join(f"{1e3 * time[h]:.3g}" if h in time else "–" for h in headings)
            + f" | {rows['orthogonalize']['percent_of_peak']:.0f} % | "
            + (f"{min(quintics) / ours:.2f}" if quintics else "–") + " | "
            + (f"{time['plain cblas'] / ours:.1f}" if "plain cblas" in time else "–") + " |")
    return lines


def numpy_table(numpy, run):
    ours = {(row["m"], row["n"]): row["seconds"] for row in run["results"]
            if row["name"] == "orthogonalize" and row["batch"] == 1}
    lines = [f"| shape | NumPy {numpy['version']}, ms | times ours |", "|---|---|---|"]
    for row in numpy["results"]:
        shape = (row["m"], row["n"])
        lines.append(f"| {shape[0]}×{shape[1]} | {1e3 * row['seconds']:.3g} | "
                     f"{row['seconds'] / ours[shape]:.1f} |")
    return lines


def optimizer_table(run):
    lines = ["| | ms | share |", "|---|---|---|"]
    for row in run["results"]:
        if "gbps" not in row:
            continue
        share = (f"{row['percent_of_bound']:.0f} % of the bound" if "percent_of_bound" in row
                 else f"{row['percent_of_copy']:.0f} % of copy")
        if "scratch_per_largest_matrix" in row:
            share += f"; scratch {row['scratch_per_largest_matrix']:.1f} × its largest matrix"
        lines.append(f"| {row['name']}, {shape_of(row)} | {1e3 * row['seconds']:.3g} | {share} |")
    return lines


def page(found, command_line):
    run = found["all_threads"]
    lines = [
        f"# {found['machine']}, {found['cpus']} CPUs", "",
        f"`{command_line}`; Muonium {run['version']}, kernel {run['kernel']}, {found['system']}.",
        f"Peak {run['peak_gflops']:.0f} GF/s (multiply-add in registers, all threads), copy "
        f"{run['copy_gbps']:.1f} GB/s (read + write), both measured in the run. "
        + (f"A word took {run['nearest_round_trip_ns']:.0f} to "
           f"{run['farthest_round_trip_ns']:.0f} ns from one thread to another and back. "
           if "farthest_round_trip_ns" in run else "")
        + "Symmetric products count one triangle.", "",
        "## Products, percent of peak", ""]
    lines += products_table({"Muonium": found["products"], **(
        {"Muonium as AVX2": found["avx2"]} if "avx2" in found else {}), **found["peers"]})
    lines += ["", "One thread:", ""]
    lines += products_table({"Muonium": found["one_thread"],
                             "peer": found["one_thread"]} if found["one_thread"]["peer"] else
                            {"Muonium": found["one_thread"]})
    lines += ["", "## Orthogonalisation, five steps or better", "",
              "× quintics: times as fast as the better of standard and Gram; × plain cblas: as "
              "five steps of plain products by the CBLAS library found first.", ""]
    lines += orthogonalize_table(run)
    if found.get("numpy"):
        lines += ["", "Five steps in NumPy:", "", *numpy_table(found["numpy"], run)]
    memory = optimizer_table(run)
    if len(memory) > 2:
        lines += ["", "## Optimizer", "", *memory]
    if "step_overhead_percent" in run:
        lines += ["", f"A Muon step on 768×3072 takes {run['step_overhead_percent']:.1f} % more "
                      "than orthogonalising alone."]
    if "torch" in found:
        lines += ["", "## PyTorch", "", found["torch"].strip()]
    return "\n".join(lines) + "\n"


# ---- the picture ----

def picture(found):
    """Percent of peak over size, of every product."""
    run, width, height, left, top, inner, tall = found["products"], 760, 430, 64, 56, 560, 300
    sizes = sorted({row["m"] for row in run["results"] if row["name"] == "gram"})
    def x_of(m):
        return left + inner * sizes.index(m) / max(len(sizes) - 1, 1)
    def y_of(value):
        return top + tall * (1 - min(value, 100) / 100)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="13">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="24" font-size="17">Share of the multiply-add peak by size</text>',
           f'<text x="{left}" y="43" fill="#555">{found["machine"]}, {found["cpus"]} CPUs, '
           f'kernel {run["kernel"]}</text>']
    for value in range(0, 101, 20):
        y = y_of(value)
        out += [f'<line x1="{left}" x2="{left + inner}" y1="{y}" y2="{y}" stroke="#ddd"/>',
                f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{value} %</text>']
    for m in sizes:
        out.append(f'<text x="{x_of(m)}" y="{top + tall + 20}" text-anchor="middle">{m}</text>')
    out.append(f'<text x="{left + inner / 2}" y="{top + tall + 42}" text-anchor="middle">'
               'm = n</text>')
    labels = []
    for name in PRODUCTS:
        points = [(x_of(m), y_of(v)) for m in sizes
                  if (v := percent(run, name, m)) is not None]
        if points:
            dash = ' stroke-dasharray="5 4"' if name.startswith("cblas") else ""
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" '
                       f'stroke-width="2.2"{dash}/>')
            labels.append([points[-1][1], name])
    labels.sort()
    for above, below in zip(labels, labels[1:]):
        below[0] = max(below[0], above[0] + 17)
    for y, name in labels:
        text = name.replace("cblas_", "CBLAS ")
        out.append(f'<text x="{left + inner + 10}" y="{y + 4:.1f}" fill="{COLOURS[name]}">'
                   f'{text}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--name", help="of the files; without it, from the names of the "
                                       "processor and the instruction set")
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=2, help="runs, of which the best counts")
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    try:
        found = measure(options)
    except subprocess.CalledProcessError as error:
        sys.exit(f"bench/report.py: {' '.join(map(str, error.cmd))} failed: {error.stderr}")
    isa = found["products"]["kernel"].split("_")[0]
    name = options.name or re.sub(r"[^a-z0-9]+", "-", f"{found['machine']} {isa}".lower())
    text = page(found, "make bench")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.output / f"{name}.md").write_text(text)
    (options.output / f"{name}.svg").write_text(picture(found))
    print(text)
    print(f"wrote {options.output / name}.json, .md and .svg")


if __name__ == "__main__":
    main()

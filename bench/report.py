#!/usr/bin/env python3
"""Measures this machine on one page: every product and orthogonalisation beside its peers.

    bench/report.py COMMAND [--quick | --full] [--save [DIRECTORY]] [--name NAME] [--seconds S]
                    [--rounds N] [--limit S]

COMMAND is the built `muonium`. The script tries every installed CBLAS library, and OpenBLAS with
each of its kernels that this CPU can run. The fastest library in its best setting is the peer of
all tables, ratios and the chart. Each other library has its own columns. Then the script runs
`muonium bench` on all threads and on one, with the AVX2 kernels too if better ones are in use, and
five iterations in NumPy if this Python has it. --full takes about twenty minutes more: MKL from
PyPI joins the peers, and the page gets steps under every recipe, the prediction for many cores,
PyTorch and JAX.

A figure whose rounds differ by more than 10 % is marked with ~. The page says how much CPU time
others took, and begins with a warning if that was much.

It takes up to five minutes. Rounds that do not fit into --limit are left out. --quick takes less
than one minute, with fewer sizes and rough figures. The page is printed. --save also writes
NAME.json, NAME.md and NAME.svg (percent of peak over size) into the directory, bench/results by
default. Run it on an otherwise idle machine.
"""

import argparse
import json
import math
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True  # a measurement leaves nothing in the sources

import disturbance  # noqa: E402
import extras  # noqa: E402

HERE = Path(__file__).resolve().parent
SIZES = (32, 64, 128, 256, 512, 1024, 2048)
FORMS = ("fixed23", "fixed15", "bf16", "stored in bf16", "stored in f16", "standard", "gram", "direct P11", "direct P12",
         "rounded to bf16")
PRODUCTS = ("gram", "symmul", "apply", "cblas_ssyrk", "cblas_sgemm")
COLOURS = dict(zip(PRODUCTS, ("#0072b2", "#d55e00", "#009e73", "#999999", "#555555")))
LIBRARIES = ("libopenblas.so.0", "libblis.so.4", "libmkl_rt.so", "libmkl_rt.so.2")
IN_NUMPY = ((512, 512), (1024, 1024), (768, 3072))
TRIED = (128, 512, 1024)  # sizes at which the settings of peers are compared
CORES = {"Haswell": "avx2", "Zen": "avx2", "SkylakeX": "avx512f"}  # what each needs


# ---- running ----

class Progress:
    """Prints what is being measured and the time left, on standard error. On a terminal
    `muonium bench` adds its own progress."""

    def __init__(self, seconds):
        self.start, self.expected, self.done, self.current = time.monotonic(), seconds, 0, 0

    def next(self, seconds, what):
        self.done += self.current
        self.current = seconds
        pace = (time.monotonic() - self.start + 10) / (self.done + 10)
        left = max(self.expected - self.done, seconds) * pace
        print(f"measuring {what}; about {left:.0f} s left", file=sys.stderr, flush=True)


def bench(command, *arguments, environment=None):
    """The JSON of `muonium bench`."""
    done = subprocess.run([command, "bench", "--json", *arguments], check=True, text=True,
                          stdout=subprocess.PIPE,
                          stderr=None if sys.stderr.isatty() else subprocess.PIPE,
                          env={**os.environ, **(environment or {})})
    return json.loads(done.stdout)


def best_of(runs):
    """One run with the best time of each row, shares taken of the best peak and bandwidth."""
    best = {**runs[0], "peak_gflops": max(run["peak_gflops"] for run in runs),
            "copy_gbps": max(run["copy_gbps"] for run in runs)}
    for peak in ("bf16_peak_gflops", "int8_peak_gops"):
        if all(peak in run for run in runs):
            best[peak] = max(run[peak] for run in runs)
    def key_of(row):
        return row["name"], row["batch"], row["m"], row["n"]
    rows = {}  # a slow peer may be measured in some of the runs only
    for row in (row for run in runs for row in run["results"]):
        rows.setdefault(key_of(row), []).append(row)
    best["results"] = [dict(min(same, key=lambda row: row["seconds"])) for same in rows.values()]
    for row, same in zip(best["results"], rows.values()):
        row["spread_percent"] = disturbance.spread([each["seconds"] for each in same])
    best["left_out"] = [row for row in best["left_out"] if key_of(row) not in rows]
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


def settings(flags, more):
    """Name, library and environment of every CBLAS setting to try; `more` are paths of libraries."""
    for path in more:
        environment = {"MUONIUM_BENCH_BLAS": path, "LD_LIBRARY_PATH": str(Path(path).parent)}
        yield f"{Path(path).name} of PyPI", path, environment
    for library in LIBRARIES:
        found = {"MUONIUM_BENCH_BLAS": library}
        yield library, library, found
        if "openblas" in library:
            for core, need in CORES.items():
                if need in flags:
                    yield f"{library} as {core}", library, {**found, "OPENBLAS_CORETYPE": core}
    yield "another CBLAS", None, {}  # whichever `muonium bench` finds


def peer_rate(run):
    """The geometric mean of the peer's rates in GF/s; 0 if it was too slow to be measured."""
    rates = [row["gflops"] for row in run["results"] if row["name"] in ("cblas_ssyrk", "cblas_sgemm")]
    return 0 if run["left_out"] or not rates else math.prod(rates) ** (1 / len(rates))


def try_peers(command, flags, sizes, seconds, more=()):
    """The best setting of every library that can be loaded, the fastest first: name, environment
    and rate; and the rate of every setting."""
    best, rates = {}, {}
    shapes = "--shapes=" + ",".join(f"{m}x{m}" for m in sizes)
    for name, library, environment in settings(flags, more):
        if library is None and best:
            break
        run = bench(command, "--products", shapes, f"--seconds={seconds}", environment=environment)
        if not run["peer"]:
            continue
        name = name if library else run["peer"]
        rates[name] = peer_rate(run)
        if library not in best or rates[name] > best[library][2]:
            best[library] = (name, environment, rates[name])
    return sorted(best.values(), key=lambda peer: -peer[2]), rates


def iterations_in_numpy(shapes, seconds):
    """Seconds of five quintic iterations as they are usually written, by shape; None without NumPy."""
    try:
        import numpy
    except ImportError:
        return None
    def five_iterations(x):
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
            five_iterations(x)
            best = min(best, time.perf_counter() - begin)
        found.append({"m": m, "n": n, "seconds": best})
    return {"version": numpy.__version__, "results": found}


def run_rounds(options, jobs, progress, start):
    """The runs of each job, as many rounds as asked for and as fit into the limit."""
    runs = {key: [] for key in jobs}
    for count in range(options.rounds):
        begin = time.monotonic()
        for key, (what, seconds, arguments, environment) in jobs.items():
            progress.next(seconds, what + (f", round {count + 1}" if count > 0 else ""))
            runs[key].append(bench(options.command, *arguments, environment=environment))
        now = time.monotonic()
        if count + 1 < options.rounds and (now - start) + (now - begin) > options.limit:
            print(f"a round takes {now - begin:.0f} s: {count + 1} instead of {options.rounds} "
                  f"(--limit={options.limit:g})", file=sys.stderr)
            break
    return runs


def measure(options):
    model, flags, cpus = machine()
    start, watch = time.monotonic(), disturbance.Watch()
    sizes = SIZES[1:4] if options.quick else SIZES
    squares = "--shapes=" + ",".join(f"{m}x{m}" for m in sizes)
    length = f"--seconds={options.seconds}"
    progress = Progress((10 if options.quick else 120) * options.rounds)
    found = {"machine": model, "cpus": cpus, "system": platform.platform()}
    progress.next(1 if options.quick else 8, "CBLAS libraries")
    best, found["settings"] = try_peers(options.command, flags, sizes[:2] if options.quick else TRIED,
                                        min(options.seconds, 0.05),
                                        filter(None, [extras.mkl()] if options.full else []))
    peer = best[0][1] if best else {}
    whole = [squares] if options.quick else ["--gpt2"]
    short = 2 if options.quick else 12
    jobs = {"all_threads": ("orthogonalisations in every form, and the optimizer",
                            4 if options.quick else 90, [length, "--forms", *whole], peer),
            "products": ("products", short, [length, "--products", squares], peer),
            "one_thread": ("products on one thread", short,
                           [length, "--products", squares, "--threads=1"], peer)}
    kernel = bench(options.command, "--products", "--shapes=8x8", "--seconds=0")["kernel"]
    if kernel.startswith("avx512"):
        jobs["avx2"] = ("products by AVX2", short, [length, "--products", squares],
                        {**peer, "MUONIUM_CPU": "avx2"})
    for name, environment, _ in best[1:]:
        jobs[name] = (f"products by {name}", short, [length, "--products", squares], environment)
    progress.expected = progress.current + options.rounds * sum(job[1] for job in jobs.values())
    rounds = run_rounds(options, jobs, progress, start)
    found["rounds"] = len(rounds["products"])
    runs = {key: best_of(all_runs) for key, all_runs in rounds.items()}
    found.update({key: run for key, run in runs.items()
                  if key in ("all_threads", "products", "one_thread", "avx2")})
    found["peers"] = {name: runs.get(name, runs["products"]) for name, _, _ in best}
    if not options.quick:
        progress.next(5 * options.seconds * len(IN_NUMPY), "five iterations in NumPy")
        found["numpy"] = iterations_in_numpy(IN_NUMPY, 5 * options.seconds)
    if options.full:
        found.update(extras.measure(options.command, progress))
    found["disturbance"] = watch.finish()
    return found


# ---- the page ----

def square(run, name, m):
    for row in run["results"]:
        if row["name"] == name and (row["m"], row["n"], row["batch"]) == (m, m, 1):
            return row
    return None


def share_of_peak(row):
    return "–" if row is None else f"{disturbance.mark(row)}{row['percent_of_peak']:.0f} %"


def milliseconds(row):
    return f"{disturbance.mark(row)}{1e3 * row['seconds']:.3g}"


def shape_of(row):
    matrix = f"{row['m']}×{row['n']}"
    return matrix if row["batch"] == 1 else f"{row['batch']} × {matrix}"


def products_table(runs):
    """Percent of peak by size; `runs` maps each heading to its run."""
    names = {"gram": "gram", "symmul": "symmul", "apply": "apply", "cblas_ssyrk": "ssyrk",
             "cblas_sgemm": "sgemm"}
    columns = [(heading, run, name) for heading, run in runs.items() for name in PRODUCTS
               if (name in ("gram", "symmul", "apply")) == heading.startswith("Muonium")]
    lines = ["| m = n | " + " | ".join(f"{names[name]}, {heading}" for heading, _, name in columns)
             + " |", "|---" * (len(columns) + 1) + "|"]
    sizes = sorted({row["m"] for row in runs["Muonium"]["results"] if row["name"] == "gram"})
    for m in sizes:
        lines.append(f"| {m} | " + " | ".join(share_of_peak(square(run, name, m)) for _, run, name in columns) + " |")
    return lines


def orthogonalize_table(run):
    """Whole orthogonalisations: the time of each form, and ratios."""
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
            + " | ".join(milliseconds(rows[h]) if h in rows else "–" for h in headings)
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
            share += f"; scratch {row['scratch_per_largest_matrix']:.1f} × the largest matrix"
        lines.append(f"| {row['name']}, {shape_of(row)} | {milliseconds(row)} | {share} |")
    return lines


def page(found, command_line, quick=False):
    run = found["all_threads"]
    others = disturbance.describe(found.get("disturbance"))
    lines = [
        f"# {found['machine']}, {found['cpus']} CPUs", "",
        *([others, ""] if others else []),
        *(["A quick run (--quick): few sizes, rough figures.", ""] if quick else []),
        f"`{command_line}`, rounds: {found['rounds']}, the best counts. Muonium {run['version']}, kernel "
        f"{run['kernel']}, {found['system']}.", "",
        f"- Peak: {run['peak_gflops']:.0f} GF/s in f32"
        + (f", {run['bf16_peak_gflops']:.0f} GF/s in bf16" if "bf16_peak_gflops" in run else "")
        + (f", {run['int8_peak_gops']:.0f} Gop/s in int8" if "int8_peak_gops" in run else "")
        + ": multiply-adds on changing operands, all threads, at the highest clock seen in this run. "
        "Shares are of f32.",
        f"- Copy: {run['copy_gbps']:.1f} GB/s (read plus written), measured in this run.",
        *([f"- Round trip: a word takes {run['nearest_round_trip_ns']:.0f} to "
           f"{run['farthest_round_trip_ns']:.0f} ns from one thread to another and back."]
          if "farthest_round_trip_ns" in run else []),
        "- Symmetric products count the flops of one triangle.",
        f"- ~ marks figures whose rounds differ by more than {disturbance.SPREAD} %.", "",
        "docs/performance.md explains the columns.", "",
        "## Products, percent of peak", ""]
    lines += products_table({"Muonium": found["products"], **(
        {"Muonium as AVX2": found["avx2"]} if "avx2" in found else {}), **found["peers"]})
    peer = next(iter(found["peers"]), None)
    if found["settings"]:
        lines += ["", "Settings of the peers that were tried, geometric mean of a few sizes: "
                       + ", ".join(f"{name} {rate:.0f} GF/s" if rate else
                                                   f"{name} too slow to be measured"
                                                   for name, rate in found["settings"].items())
                      + "."]
    left_out = found["products"]["left_out"] + run["left_out"]
    if left_out:
        lines += ["", "Left out, because one run would take long: " + ", ".join(
            f"{row['name']} of {shape_of(row)} ({row['seconds_expected']:.0f} s)"
            for row in left_out) + "."]
    lines += ["", "One thread:", ""]
    lines += products_table({"Muonium": found["one_thread"],
                             **({peer: found["one_thread"]} if peer else {})})
    lines += ["", "## Orthogonalisation", "",
              "- orthogonalize: the default, which picks the fastest form.",
              "- × quintics: speed over the faster of the standard and the Gram form of five quintics.",
              "- × plain cblas: speed over five iterations in general products of "
              f"{peer or 'a CBLAS library (none is installed)'}.", ""]
    lines += orthogonalize_table(run)
    if found.get("numpy"):
        lines += ["", "Five iterations in NumPy:", "", *numpy_table(found["numpy"], run)]
    memory = optimizer_table(run)
    if len(memory) > 2:
        lines += ["", "## Optimizer", "", *memory]
    if "step_overhead_percent" in run:
        lines += ["", f"A Muon step on 768×3072 takes {run['step_overhead_percent']:.1f} % more "
                      "time than its orthogonalisation."]
    lines += extras.sections(found)
    return "\n".join(lines) + "\n"


# ---- the picture ----

def picture(found):
    """Percent of peak over size, of every product."""
    run, width, height, left, top, inner, tall = found["products"], 760, 430, 64, 56, 560, 300
    sizes = sorted({row["m"] for row in run["results"] if row["name"] == "gram"})
    peer = next(iter(found["peers"]), None)
    def x_of(m):
        return left + inner * sizes.index(m) / max(len(sizes) - 1, 1)
    def y_of(value):
        return top + tall * (1 - min(value, 100) / 100)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="13">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="24" font-size="17">Share of the multiply-add peak by size</text>',
           f'<text x="{left}" y="43" fill="#555">{found["machine"]}, {found["cpus"]} CPUs, '
           f'kernel {run["kernel"]}' + (f', beside {peer}' if peer else "") + '</text>']
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
                  if (row := square(run, name, m)) is not None for v in [row["percent_of_peak"]]]
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
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="less than a minute, rough figures")
    length.add_argument("--full", action="store_true",
                        help="twenty minutes more: MKL, every recipe, many cores, PyTorch, JAX")
    parser.add_argument("--save", type=Path, nargs="?", const=HERE / "results", metavar="DIRECTORY",
                        help="write the page, its data and a chart there (bench/results)")
    parser.add_argument("--name", help="name of the files (default: processor and instruction set)")
    parser.add_argument("--seconds", type=float, help="time per figure (0.2, with --quick 0.05)")
    parser.add_argument("--rounds", type=int, help="number of runs; the best counts (2, with --quick 1)")
    parser.add_argument("--limit", type=float, default=270, metavar="SECONDS",
                        help="start no round that would end later (270)")
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = 0.05 if options.quick else 0.2
    if options.rounds is None:
        options.rounds = 1 if options.quick else 2
    if not options.quick:
        print("this takes up to five minutes; BENCH_FLAGS=--quick takes less than one"
              if not options.full else "this takes up to half an hour", file=sys.stderr)
    try:
        found = measure(options)
    except subprocess.CalledProcessError as error:
        sys.exit(f"bench/report.py: {' '.join(map(str, error.cmd))} failed: {error.stderr or ''}")
    flags = shlex.join(argument for argument in sys.argv[2:] if not argument.startswith("--save"))
    text = page(found, f'make bench BENCH_FLAGS="{flags}"' if flags else "make bench", options.quick)
    print(text)
    if not options.save:
        print("not saved: --save writes the page, its data and a chart")
        return
    isa = found["products"]["kernel"].split("_")[0]
    name = options.name or re.sub(r"[^a-z0-9]+", "-", f"{found['machine']} {isa}".lower())
    options.save.mkdir(parents=True, exist_ok=True)
    (options.save / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.save / f"{name}.md").write_text(text)
    (options.save / f"{name}.svg").write_text(picture(found))
    if "cores" in found:
        (options.save / f"{name}-cores.svg").write_text(extras.cores_chart.picture(found["cores"], found["machine"]))
    print(f"wrote {options.save / name}.json, .md and .svg")


if __name__ == "__main__":
    main()

"""The page of `make bench`, from a run too short for its figures to mean anything."""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from muonium_command import MUONIUM

REPORT = Path(__file__).resolve().parents[2] / "bench" / "report.py"


def test_the_page_has_every_figure(tmp_path):
    done = subprocess.run(
        [sys.executable, REPORT, MUONIUM, "--quick", "--seconds=0", "--save", tmp_path / "new",
         "--name", "here"], check=True, capture_output=True, text=True)
    page = (tmp_path / "new" / "here.md").read_text()
    assert page in done.stdout and "A quick run (--quick)" in page
    assert "measuring products on one thread; about" in done.stderr
    found = json.loads((tmp_path / "new" / "here.json").read_text())
    sizes = [row["m"] for row in found["products"]["results"] if row["name"] == "gram"]
    assert sizes == [64, 128, 256]
    for m in sizes:
        row = next(line for line in page.splitlines() if line.startswith(f"| {m} |"))
        assert all(0 < float(cell.strip(" %")) for cell in row.split("|")[2:5])
        assert f"| {m}×{m} |" in page
    run = found["all_threads"]
    assert ("gram, Muonium as AVX2" in page) == run["kernel"].startswith("avx512")
    # A machine so busy that two threads never had a CPU at the same time has no such figure.
    assert ("from one thread to another" in page) == ("farthest_round_trip_ns" in run)
    if "farthest_round_trip_ns" in run:
        assert found["cpus"] > 1
        assert 0 < run["nearest_round_trip_ns"] <= run["farthest_round_trip_ns"] < 1e8
        assert f"to {run['farthest_round_trip_ns']:.0f} ns from one thread" in page
    forms = {row["name"].strip() for row in found["all_threads"]["results"]}
    assert {"standard", "gram", "direct P11", "direct P12", "orthogonalize"} <= forms
    table = [line.split("|") for line in page.splitlines() if "×64 |" in line or "×128 |" in line]
    assert len(table) >= 2 and all(float(cells[-3]) > 0 for cells in table)  # × quintics
    picture = ElementTree.parse(tmp_path / "new" / "here.svg").getroot()
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) >= 3
    assert all(len(line.get("points").split()) == 3 for line in lines)


def imported():
    sys.path.insert(0, str(REPORT.parent))
    try:
        import report
    finally:
        sys.path.pop(0)
    return report


def test_iterations_in_numpy_are_compared_with_ours():
    report = imported()
    found = report.iterations_in_numpy(((4, 8), (6, 6)), 0)
    assert [(row["m"], row["n"]) for row in found["results"]] == [(4, 8), (6, 6)]
    assert all(row["seconds"] > 0 for row in found["results"])
    ours = [{"name": "orthogonalize", "batch": 1, "m": row["m"], "n": row["n"],
             "seconds": row["seconds"] / 4} for row in found["results"]]
    table = report.numpy_table(found, {"results": ours})
    assert [line.split("|")[3].strip() for line in table[2:]] == ["4.0", "4.0"]


def test_the_best_of_runs_is_taken_row_by_row():
    report = imported()

    def run(peak, copy, first, second):
        """The rows move 8 billion operations; the second 2 GB too."""
        shape = {"batch": 1, "m": 4, "n": 4}
        rows = [{"name": "gram", **shape, "seconds": first, "gflops": 8 / first,
                 "percent_of_peak": 0},
                {"name": "step", **shape, "seconds": second, "gflops": 8 / second,
                 "gbps": 2 / second, "percent_of_peak": 0, "percent_of_copy": 0,
                 "percent_of_bound": 0}]
        return {"peak_gflops": peak, "copy_gbps": copy, "results": rows, "comparisons": [],
                "left_out": [],
                "nearest_round_trip_ns": peak, "farthest_round_trip_ns": copy}

    best = report.best_of([run(80, 20, 0.2, 0.5), run(100, 10, 0.4, 0.25)])
    assert (best["peak_gflops"], best["copy_gbps"]) == (100, 20)
    assert (best["nearest_round_trip_ns"], best["farthest_round_trip_ns"]) == (80, 20)
    first, second = best["results"]
    assert (first["seconds"], first["gflops"], first["percent_of_peak"]) == (0.2, 40, 40)
    assert second["seconds"] == 0.25 and second["percent_of_copy"] == 40
    assert second["percent_of_bound"] == 100 * (8 / 100 + 2 / 20) / 0.25


def test_what_one_run_left_out_another_may_have():
    report = imported()
    row = {"name": "cblas_sgemm", "batch": 1, "m": 4, "n": 4}
    run = {"peak_gflops": 10, "copy_gbps": 1, "comparisons": []}
    without = {**run, "results": [], "left_out": [{**row, "seconds_expected": 2}]}
    measured = {**row, "seconds": 2, "gflops": 1, "percent_of_peak": 0}
    best = report.best_of([without, {**run, "results": [measured], "left_out": []}])
    assert best["left_out"] == [] and [r["percent_of_peak"] for r in best["results"]] == [10]


def test_peers_are_shown_in_their_best_setting(monkeypatch):
    """A library that is misdetected is compared as what it should have been."""
    report = imported()
    rates = {None: 50, "Haswell": 200, "Zen": 100}

    def bench(command, *arguments, environment=None):
        library = environment.get("MUONIUM_BENCH_BLAS", "libany.so")
        there = {"libopenblas.so.0": rates[environment.get("OPENBLAS_CORETYPE")], "libblis.so.4": 70}
        rows = [{"name": name, "gflops": there.get(library, 1)} for name in ("cblas_ssyrk", "cblas_sgemm")]
        return {"peer": library if library in there or library == "libany.so" else None,
                "results": rows, "left_out": []}

    monkeypatch.setattr(report, "bench", bench)
    best, tried = report.try_peers("muonium", {"avx2"}, (64,), 0)
    assert [(name, round(rate)) for name, _, rate in best] == [
        ("libopenblas.so.0 as Haswell", 200), ("libblis.so.4", 70)]
    assert best[0][1]["OPENBLAS_CORETYPE"] == "Haswell" and len(tried) == 4
    monkeypatch.setattr(report, "LIBRARIES", ())
    best, _ = report.try_peers("muonium", set(), (64,), 0)
    assert [name for name, _, _ in best] == ["libany.so"]


def test_rounds_end_in_time(monkeypatch, capsys):
    report = imported()
    monkeypatch.setattr(report, "bench", lambda *_, environment: {})
    clock = iter(range(0, 10000, 60))
    monkeypatch.setattr(report.time, "monotonic", lambda: next(clock))
    options = report.argparse.Namespace(command="muonium", rounds=5, limit=600)
    jobs = {"products": ("products", 60, [], {})}
    runs = report.run_rounds(options, jobs, report.Progress(300), 0)
    assert 1 <= len(runs["products"]) < 5
    assert "instead of 5" in capsys.readouterr().err


def test_nothing_is_left_behind(tmp_path):
    shape = {"batch": 1, "m": 64, "n": 64, "seconds": 1, "gflops": 1}
    run = {"version": "1", "kernel": "portable", "peer": None, "peak_gflops": 2, "copy_gbps": 1,
           "comparisons": [], "left_out": [],
           "results": [{"name": name, **shape} for name in ("gram", "orthogonalize")]}
    command = tmp_path / "muonium"
    command.write_text(f"#!/bin/sh\necho '{json.dumps(run)}'\n")
    os.chmod(command, 0o755)
    root = tmp_path / "checkout"
    (root / "bench").mkdir(parents=True)
    modules = ["cores_chart.py", "disturbance.py", "extras.py", "report.py"]
    for module in modules:
        (root / "bench" / module).write_text((REPORT.parent / module).read_text())
    done = subprocess.run([sys.executable, root / "bench" / "report.py", command, "--quick"],
                          cwd=root, check=True, capture_output=True, text=True)
    assert "| 64 | 50 % |" in done.stdout and "not saved: --save" in done.stdout
    assert sorted(path.name for path in root.rglob("*")) == ["bench", *modules]


def turns(*arguments):
    root = REPORT.parent.parent
    return subprocess.run(
        [sys.executable, root / "bench" / "turns.py", *arguments, "--shapes=6x4,3x4x8",
         "--seconds=0", "--threads=1"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(root / "python"),
             "MUONIUM_LIBRARY": str(MUONIUM.parent / "libmuonium.so")})


def test_builds_take_turns():
    library = MUONIUM.parent / "libmuonium.so"
    done = turns(library, f"{library}@portable", f"{library}:bf16")
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:]]
    assert [row[0].strip() for row in rows] == ["1x6x4"] * 3 + ["3x4x8"] * 3, done.stderr
    assert all(float(cell) > 0 for row in rows for cell in row[2:])
    assert all(float(cell) == 1 for row in rows[::3] for cell in row[3:])
    assert len(turns(library, "--precision=bf16").stdout.splitlines()) == 2 + 2
    refused = turns(library, "--precision=f8")
    assert refused.returncode == 2 and "f8" in refused.stderr and not refused.stdout


def test_what_turns_cannot_compare_is_named():
    library = MUONIUM.parent / "libmuonium.so"
    for contestant, complaint in ((f"{library}:f8", "f8"), (f"{library}@486", '"486"'),
                                  ("no/such.so", "cannot read no/such.so")):
        done = turns(contestant)
        assert done.returncode == 1 and complaint in done.stderr and not done.stdout


def test_a_failing_command_is_named(tmp_path):
    broken = tmp_path / "muonium"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 3\n")
    os.chmod(broken, 0o755)
    done = subprocess.run([sys.executable, REPORT, broken, "--save", tmp_path],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "out of order" in done.stderr
    assert list(tmp_path.iterdir()) == [broken]

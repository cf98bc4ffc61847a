"""What the page of `make bench` says of other work on the machine, and what --full adds to it."""
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import disturbance
import extras
import report


def run_of(*seconds):
    return [{"peak_gflops": 1.0, "copy_gbps": 1.0, "left_out": [], "comparisons": [],
             "results": [{"name": "gram", "batch": 1, "m": 8, "n": 8, "seconds": s, "gflops": 1 / s}]}
            for s in seconds]


def test_figures_whose_rounds_differ_are_marked():
    for seconds, expected in (((1.0, 1.05), ""), ((1.0, 1.2), "~"), ((1.2, 1.0), "~"), ((1.0,), "")):
        row = report.best_of(run_of(*seconds))["results"][0]
        assert row["seconds"] == min(seconds)
        assert disturbance.mark(row) == expected
        assert report.milliseconds(row) == expected + "1e+03"


def test_other_programs_are_noticed():
    watch = disturbance.Watch()
    if watch.start is None:
        pytest.skip("this system has no /proc/stat")
    # A child that is not waited for while the watch runs is another program to it.
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    time.sleep(1)
    found = watch.finish()
    other.kill()
    other.wait()
    assert found["others_percent"] > 5  # a core is 50 % of two, and 10 % of ten
    assert disturbance.describe(found).startswith("**Disturbed:**")
    quiet = {"others_percent": 1.0, "steal_percent": 0.4}
    assert disturbance.describe(quiet).startswith("CPU time that others took") and disturbance.describe({}) is None


def test_table_of_recipes():
    run = {"recipes": [{"recipe": name, "seconds": s, "times_as_fast": 2 / s, "percent_of_bound": 80.0,
                        "state_bytes": 4 * extras.GPT2, "flops": 10 * extras.GPT2}
                       for name, s in (("muonium", 2.0), ("dion2", 0.5))]}
    lines = extras.sections({"recipes": run, "torch": "| a table |\n"})
    assert "| `dion2` | 500 | 4.00 | 80 % | 4.00 | 10 |" in lines
    assert "## PyTorch" in lines and "## JAX" not in lines


def test_peers_of_pypi_come_with_their_directory(monkeypatch):
    first = next(report.settings(set(), ["/here/lib/libmkl_rt.so.2"]))
    assert first == ("libmkl_rt.so.2 of PyPI", "/here/lib/libmkl_rt.so.2",
                     {"MUONIUM_BENCH_BLAS": "/here/lib/libmkl_rt.so.2", "LD_LIBRARY_PATH": "/here/lib"})
    answers = {"stdout": "SKIPPED: PyPI cannot be reached\n"}
    monkeypatch.setattr(extras.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, answers["stdout"], ""))
    assert extras.mkl() is None
    answers["stdout"] = "/a/libmkl_rt.so.1\n"
    assert extras.mkl() == "/a/libmkl_rt.so.1"

"""What bench/report.py --full adds to its page: MKL from PyPI among the peers, steps under every
recipe, the prediction for many cores, PyTorch and JAX."""
import json
import os
import subprocess
from pathlib import Path

import cores_chart

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
GPT2 = 124_439_808  # parameters of the model that --recipes steps


def from_pypi(name, requirements, size, *arguments):
    """Output of Python with these packages; None if PyPI cannot be reached, or it fails."""
    done = subprocess.run([ROOT / "tools/pypi-environment", name, requirements, size, *arguments],
                          text=True, capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    skipped = next((line for line in done.stdout.splitlines() if line.startswith("SKIPPED")), None)
    if done.returncode != 0 or skipped:
        print(f"left out: {skipped or done.stderr.strip()[-500:]}")
        return None
    return done.stdout


def mkl():
    """The path of MKL's library, or None."""
    code = "import glob, sys; print(*sorted(glob.glob(sys.prefix + '/lib/libmkl_rt.so*')))"
    found = from_pypi("bench", HERE / "requirements.txt", "1 GB", "-c", code)
    return found.split()[-1] if found and found.split() else None


def run_json(command, *arguments):
    done = subprocess.run([command, "bench", "--json", *arguments], check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def measure(command, progress):
    found = {}
    progress.next(150, "steps under every recipe")
    found["recipes"] = run_json(command, "--recipes")
    progress.next(240, "the schedule for many cores")
    found["cores"] = run_json(command, "--cores=1,2,8,16,32,64,128")
    for key, script, seconds in (("torch", "python_step.py", 120), ("jax", "jax_speed.py", 120)):
        progress.next(seconds, {"torch": "PyTorch", "jax": "JAX"}[key])
        found[key] = from_pypi("compare", ROOT / "tests/compare/requirements.txt", "6 GB", HERE / script)
    return {key: value for key, value in found.items() if value}


def recipes_table(run):
    lines = ["| recipe | ms | times as fast as the first | of its bound | state, bytes per parameter | flops per parameter |",
             "|---|---|---|---|---|---|"]
    for row in run["recipes"]:
        lines.append(f"| `{row['recipe']}` | {1e3 * row['seconds']:.4g} | {row['times_as_fast']:.2f} | "
                     f"{row['percent_of_bound']:.0f} % | {row['state_bytes'] / GPT2:.2f} | "
                     f"{row['flops'] / GPT2:.4g} |")
    return lines


def sections(found):
    """Lines for the page."""
    lines = []
    if "recipes" in found:
        lines += ["", "## A step of GPT-2 124M under every recipe", "",
                  "In f32, and with the routing of our own recipe, so that the rules alone differ. The bound is the "
                  "time of the bytes at copy bandwidth and of the operations at the peak.", "",
                  *recipes_table(found["recipes"])]
    if "cores" in found:
        lines += ["", "## Many cores, predicted", "", *cores_chart.section(found["cores"])]
    for key, title in (("torch", "PyTorch"), ("jax", "JAX")):
        if key in found:
            lines += ["", f"## {title}", "", found[key].strip()]
    return lines

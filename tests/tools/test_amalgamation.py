"""The library as one file (tools/make-amalgamation) compiles without a warning and without options,
exports the same functions, and computes the same bits as the library of the build."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from muonium_command import BUILD

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Every recipe takes three steps with a matrix, experts, a fused one and vectors; every precision and
# form orthogonalises a batch. Printed is a hash of each result.
PROGRAM = """
import hashlib, sys
import numpy as np
import muonium

def show(name, *arrays):
    print(name, hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest())

random = np.random.default_rng(1)
shapes = {"h.0.attn.c_attn.weight": (96, 96), "h.0.mlp.experts.w1": (3, 24, 50), "wte.weight": (60, 40), "ln.bias": (40,)}
values = [{n: random.standard_normal(s).astype("f4") for n, s in shapes.items()} for _ in range(4)]
for recipe in muonium.recipes():
    weights = {n: v.copy() for n, v in values[0].items()}
    optimizer = muonium.Optimizer(weights, recipe=recipe, lr=0.01, split_fused=True)
    for gradients in values[1:]:
        optimizer.step(gradients)
    show(recipe, *weights.values())
matrices = random.standard_normal((3, 70, 150)).astype("f4")
for precision in ("f32", "f64", "bf16", "f16", "fixed23", "fixed15"):
    for form in ("standard", "gram"):
        show(precision + " " + form, muonium.orthogonalize(matrices, precision=precision, form=form))
show("direct", muonium.orthogonalize(matrices, form="direct"))
"""


def compiler():
    cache = (BUILD / "CMakeCache.txt").read_text()
    return re.search(r"^CMAKE_C_COMPILER:\w+=(.*)$", cache, re.M)[1]


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with the two files, the object and a shared library of it."""
    made = tmp_path_factory.mktemp("amalgamation")
    run(SOURCE / "tools/make-amalgamation", made)
    assert sorted(p.name for p in made.iterdir()) == ["muonium.c", "muonium.h"]
    run(compiler(), "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-c", "muonium.c", cwd=made)
    run(compiler(), "-shared", "muonium.o", "-o", "libmuonium.so", "-lm", "-pthread", cwd=made)
    return made


def test_a_program_runs(place):
    run(compiler(), "-I.", SOURCE / "examples/smallest.c", "muonium.o", "-o", "smallest", "-lm", "-pthread", cwd=place)
    assert run(place / "smallest") == run(BUILD / "examples/smallest")


def test_it_exports_the_public_functions_alone(place):
    names = {line.split()[-1] for line in run("nm", "-D", "--defined-only", place / "libmuonium.so").splitlines()}
    expected = (SOURCE / "tests/data/exported-symbols.txt").read_text().split()
    assert names == {name for name in expected if not name.startswith(("muonium_mpi", "muonium_private"))}


def results(library, kernels):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE / "python"), "MUONIUM_LIBRARY": str(library)}
    environment.pop("MUONIUM_CPU", None)
    if kernels:
        environment["MUONIUM_CPU"] = kernels
    return run(sys.executable, "-c", PROGRAM, env=environment)


@pytest.mark.parametrize("kernels", ["portable", "avx2", ""])
def test_results_are_those_of_the_library(place, kernels):
    pytest.importorskip("numpy")
    shown = subprocess.run([str(BUILD / "muonium"), "info"], capture_output=True, env={**os.environ, "MUONIUM_CPU": kernels or "portable"})
    if shown.returncode != 0:
        pytest.skip(f"this CPU has no {kernels}")
    ours = results(BUILD / "libmuonium.so", kernels)
    assert len(ours.splitlines()) == 27
    assert results(place / "libmuonium.so", kernels) == ours

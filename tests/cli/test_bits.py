"""Results do not change unnoticed: checksums of what the command computes, compared with the
committed table tests/data/bits.json.

Each instruction set has its own column, since only sums in the same order have the same bits. The
inputs are fractions made of integers, so that they are the same everywhere. After an intended
change, `PYTHONPATH=tests/support python3 tests/cli/test_bits.py --update` writes the table anew
(with the build of MUONIUM_BUILD_DIR) for the instruction sets of the machine and keeps the others.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import safetensors_file
from muonium_command import MUONIUM, environment, run
from package import ROOT

import muonium  # noqa: E402

TABLE = ROOT / "tests/data/bits.json"
SETS = ("portable", "avx2", "avx512")
STEPS = 20

# Square and rectangular, below, at and beyond the sizes of tiles and blocks, tall, a batch.
SHAPES = ((1, 7), (8, 8), (33, 17), (64, 64), (96, 100), (130, 520), (300, 129), (3, 40, 24),
          (384, 400))
FORMS = {"f32": ("auto", "quintic", "standard", "gram", "direct"), "f64": ("standard", "gram", "direct"),
         "bf16": ("quintic", "standard", "gram"), "f16": ("standard", "gram")}
NORMS = ("frobenius", "schatten", "aol", "spectral")
ROUNDINGS = ("torch", "keller", "motif", "fp16")
RECIPES = muonium.recipes()

# Names that route to Muon and to AdamW, tensors of every rank, experts, a fused matrix.
PARAMETERS = {"h.0.attn.c_attn.weight": (48, 16), "h.0.mlp.up.weight": (40, 24),
              "h.0.mlp.down.weight": (24, 40), "h.0.mlp.experts.w1": (3, 12, 20),
              "h.0.conv.weight": (8, 6, 3, 3), "h.0.ln.weight": (24,), "wte.weight": (50, 24),
              "h.0.mlp.bias": (40,)}
VARIANTS = {"normuon": ("--normuon", "on", "--decay", "cautious"),
            "half state": ("--state-dtype", "bf16", "--decay", "independent"),
            "split": ("--split", "--experts", "on", "--momentum-form", "sum")}


def fractions(shape, seed):
    """Numbers in [-1, 1), multiples of 2^-15, from a linear congruential generator."""
    count = int(np.prod(shape))
    state, values = seed, np.empty(count, np.float32)
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values[i] = ((state >> 48) - 2**15) / 2**15
    return values.reshape(shape)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def orthogonalized(directory, isa, shape, *options):
    out = directory / "out.npy"
    source = directory / f"{'x'.join(map(str, shape))}.npy"
    if not source.exists():
        np.save(source, fractions(shape, 1))
    run("orthogonalize", source, out, *options, env=environment(MUONIUM_CPU=isa))
    return digest(np.load(out).tobytes())


def orthogonalizations(directory, isa):
    """Pairs of what was asked for and the checksum of the result."""
    for shape in SHAPES:
        for precision, forms in FORMS.items():
            for form in forms:
                yield (f"{shape} {precision} {form}",
                       orthogonalized(directory, isa, shape, "--precision", precision, "--form", form))
    for norm in NORMS:
        for shape in ((33, 17), (96, 100)):
            yield (f"{shape} {norm}", orthogonalized(directory, isa, shape, "--normalize", norm,
                                                     "--eps-mode", "add", "-c", "original"))
    for rounding in ROUNDINGS:
        for shape in ((33, 17), (96, 100)):
            yield (f"{shape} bf16 {rounding}",
                   orthogonalized(directory, isa, shape, "--precision", "bf16", "--rounding", rounding,
                                  "-c", "original", "--eps-mode", "add"))


def trajectory(directory, isa, *options):
    """The checksum of all parameters after some steps, each with gradients of its own."""
    params, grads, state = (directory / f"{name}.safetensors" for name in ("p", "g", "s"))
    state.unlink(missing_ok=True)
    safetensors_file.write(params, {name: safetensors_file.pack(fractions(shape, 2) / 4)
                                    for name, shape in PARAMETERS.items()})
    for step in range(STEPS):
        safetensors_file.write(grads, {name: safetensors_file.pack(GRADIENTS[step % 4][name])
                                       for name in PARAMETERS})
        run("step", "--params", params, "--grads", grads, "--state", state, *options,
            "--lr", "0.0625", env=environment(MUONIUM_CPU=isa))
    tensors, _ = safetensors_file.read(params)
    return digest(b"".join(tensors[name][2] for name in PARAMETERS))


GRADIENTS = [{name: fractions(shape, 3 + step) for name, shape in PARAMETERS.items()}
             for step in range(4)]


def trajectories(directory, isa):
    for recipe in RECIPES:
        yield f"recipe {recipe}", trajectory(directory, isa, "--recipe", recipe)
    for name, options in VARIANTS.items():
        yield f"muonium, {name}", trajectory(directory, isa, *options)


def available(isa):
    """Whether this machine and build have an instruction set."""
    return subprocess.run([str(MUONIUM), "info"], env=environment(MUONIUM_CPU=isa),
                          capture_output=True).returncode == 0


@pytest.mark.parametrize("kind", [orthogonalizations, trajectories], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("isa", SETS)
def test_bits_are_those_of_the_table(isa, kind, tmp_path):
    if not available(isa):
        pytest.skip(f"this machine or build has no {isa}")
    table = json.loads(TABLE.read_text())
    missing, changed = [], []
    for what, found in kind(tmp_path, isa):
        recorded = table.get(what, {}).get(isa)
        if recorded != found:
            (changed if recorded else missing).append(what)
    assert not changed, f"{len(changed)} results have other bits, among them {changed[:8]}"
    assert not missing, f"not in the table: {missing[:8]}; add them with --update"


def update():
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        for isa in filter(available, SETS):
            for kind in (orthogonalizations, trajectories):
                for what, found in kind(pathlib.Path(place), isa):
                    table.setdefault(what, {})[isa] = found
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit(__doc__)
    update()

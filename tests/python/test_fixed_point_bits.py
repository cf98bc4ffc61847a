"""Fixed-point results are the same bits everywhere: checksums of orthogonalisations and of whole
optimizer steps, compared with the committed table tests/data/fixed_point.json. The table has one
column for all instruction sets, numbers of threads and compilers.

The inputs are fractions made of integers, so that they are the same everywhere. After an intended
change, `PYTHONPATH=tests/support python3 tests/python/test_fixed_point_bits.py --update` writes the
table anew.
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import package  # noqa: F401, finds the library

import muonium  # noqa: E402

TABLE = pathlib.Path(__file__).resolve().parents[1] / "data" / "fixed_point.json"
SETS = ("portable", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx", "neon",
        "neon_dotprod", "neon_i8mm", "neon_bf16")
PRECISIONS = ("fixed23", "fixed15")
THREADS = (1, 2, 7)

# Not whole tiles or blocks; sums of more than one k-block; a batch.
SHAPES = ((130, 520), (300, 129), (600, 600), (200, 2100), (5, 48, 80))
NORMS = ({"normalize": "schatten"}, {"normalize": "spectral"},
         {"normalize": "aol", "coefficients": "aol"}, {"normalize": "none", "form": "standard"},
         {"eps_mode": "add", "eps": 0.5}, {"safety_factor": 1.25})
FORMS = ({"form": "standard"}, {"form": "gram"}, {"direct_set": "P13", "form": "direct"})
RECIPES = ({}, {"normuon": True, "decay": "cautious"}, {"adamuon": True}, {"state_dtype": "bf16"},
           {"momentum_form": "sum", "nesterov": False}, {"recipe": "muonh"}, {"recipe": "nanochat"},
           {"recipe": "keller"}, {"recipe": "moonlight"}, {"recipe": "timm"})
PARAMETERS = {"up": (40, 24), "down": (24, 40), "experts": (3, 12, 20), "square": (33, 33),
              "bias": (40,)}


def fractions(shape, seed):
    """Numbers in [-1, 1), multiples of 2^-15: words of SplitMix64."""
    x = (np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(1 + seed * 2**32)) \
        * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words = (x >> np.uint64(48)).astype(np.float32)
    return ((words - 2**15) / 2**15).reshape(shape)


def digest(*arrays):
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()[:16]


def cases():
    """What is computed: a shape and options."""
    for shape in SHAPES:
        yield shape, {}
        for options in FORMS:
            if shape != (600, 600):
                yield shape, options
    for options in NORMS:
        yield (130, 520), options
        yield (48, 48), options


def trajectory(precision, **options):
    """All parameters after ten steps, each with gradients of its own."""
    recipe = options.pop("recipe", None)
    weights = {name: fractions(shape, 2) / 4 for name, shape in PARAMETERS.items()}
    optimizer = muonium.Optimizer(weights, recipe, lr=0.0625, precision=precision,
                                  layout_3d="experts", **options)
    for step in range(10):
        optimizer.step({name: fractions(shape, 3 + step % 4) for name, shape in PARAMETERS.items()})
    return digest(*weights.values())


def named(options):
    return " ".join(f"{name}={value}" for name, value in options.items()) or "defaults"


def computed():
    """Pairs of what was computed and the checksum."""
    for precision in PRECISIONS:
        for shape, options in cases():
            x = fractions(shape, 1)
            if options.get("normalize") == "none":
                x = x / 128
            yield (f"{precision} {'x'.join(map(str, shape))} {named(options)}",
                   digest(muonium.orthogonalize(x, precision=precision, **options)))
        for options in RECIPES:
            yield f"{precision} steps: {named(options)}", trajectory(precision, **options)


def child():
    """Print what this instruction set computes, by number of threads."""
    found = {}
    # The portable kernel takes seconds for the large matrices.
    for threads in THREADS if os.environ.get("MUONIUM_CPU") != "portable" else THREADS[1:2]:
        muonium.set_threads(threads)
        found[str(threads)] = dict(computed())
    print(json.dumps(found))


@pytest.mark.parametrize("isa", SETS)
def test_the_same_bits_everywhere(isa):
    environment = {**os.environ, "MUONIUM_CPU": isa, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__, "--child"], env=environment, timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if "MUONIUM_CPU is" in done.stderr:
        pytest.skip(f"this CPU or build has no {isa}")
    assert done.returncode == 0, done.stderr
    table = json.loads(TABLE.read_text())
    for threads, found in json.loads(done.stdout).items():
        assert found.keys() == table.keys()
        changed = [what for what in table if found[what] != table[what]]
        assert not changed, f"{threads} threads: {len(changed)} differ, among them {changed[:8]}"


def test_the_cases_differ():
    """Checksums that were all alike would show nothing."""
    table = json.loads(TABLE.read_text())
    assert len(set(table.values())) == len(table)


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        child()
    elif sys.argv[1:] == ["--update"]:
        TABLE.write_text(json.dumps(dict(computed()), indent=1) + "\n")
    else:
        sys.exit(__doc__)

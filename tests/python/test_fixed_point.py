"""Fixed-point precisions: accuracy on matrices that break implementations, exact invariance under
powers of two, and the promise of the same bits everywhere.

The bounds are twice the errors that a simulation of the method in NumPy had on the same kinds of
matrices, relative to the result in f64 and in the Frobenius norm.
"""
import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

import package  # noqa: F401, finds the library

import muonium  # noqa: E402

SIZE = 256
SETS = ("portable", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx")


def with_spectrum(random, sigma):
    """A square matrix with random singular vectors."""
    left, right = (np.linalg.qr(random.standard_normal((SIZE, SIZE)))[0] for _ in range(2))
    return (left * sigma) @ right.T


def matrices():
    """Pairs of a name and a matrix, with the bounds on the errors of fixed23 and fixed15."""
    random = np.random.default_rng(5)
    gauss = random.standard_normal((SIZE, SIZE))
    half = np.ones(SIZE)
    half[SIZE // 2:] = 0
    one = np.zeros(SIZE)
    one[0] = 1
    large = gauss.copy()
    large[3, 5] = 1e4
    graded = np.logspace(0, -6, SIZE)
    both = np.outer(np.logspace(0, -3, SIZE), np.logspace(0, -3, SIZE))
    return {
        "gaussian": (gauss, 1.9e-5, 7e-4),
        "wide": (random.standard_normal((384, 512)), 1.9e-5, 7e-4),
        "tall": (random.standard_normal((512, 384)), 1.9e-5, 7e-4),
        "logspace": (with_spectrum(random, np.logspace(0, -3, SIZE)), 1.6e-4, 4.3e-3),
        "half zero": (with_spectrum(random, half), 5.7e-5, 4.0e-3),
        "exponential": (with_spectrum(random, np.exp(-np.arange(SIZE) / 4)), 3.5e-4, 1.4e-2),
        "rank 1": (with_spectrum(random, one), 3.4e-4, 4.2e-2),
        "rows graded": (gauss * graded[:, None], 5.2e-4, 1.7e-2),
        "columns graded": (gauss * graded, 1e-3, 8e-3),
        "both graded": (gauss * both, 1.1e-3, 2.2e-2),
        "cauchy": (random.standard_cauchy((SIZE, SIZE)), 3.8e-4, 9.3e-3),
        "one large": (large, 6.8e-5, 5.0e-3),
        "rank 32": (random.standard_normal((SIZE, 32)) @ random.standard_normal((32, SIZE)) / 32
                    + 1e-3 * gauss, 1.5e-4, 1.2e-2),
    }


MATRICES = matrices()


@pytest.mark.parametrize("name", MATRICES)
def test_accuracy_of_the_direct_form(name):
    matrix, fixed23, fixed15 = MATRICES[name]
    matrix = matrix.astype(np.float32)
    exact = muonium.orthogonalize(matrix.astype(np.float64), precision="f64", form="auto",
                                  direct_set="P11")
    for precision, bound in (("fixed23", 2 * fixed23), ("fixed15", 2 * fixed15)):
        found = muonium.orthogonalize(matrix, precision=precision, form="auto", direct_set="P11")
        error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
        assert error <= bound, f"{precision}: {error:.1e}"


@pytest.mark.parametrize("form", ["standard", "gram"])
@pytest.mark.parametrize("name", MATRICES)
def test_quintics_are_as_accurate(name, form):
    """Five quintics amplify less than the direct form: its bounds hold for them too."""
    matrix, fixed23, fixed15 = MATRICES[name]
    matrix = matrix.astype(np.float32)
    exact = muonium.orthogonalize(matrix.astype(np.float64), precision="f64", form=form)
    for precision, bound in (("fixed23", 2 * fixed23), ("fixed15", 2 * fixed15)):
        found = muonium.orthogonalize(matrix, precision=precision, form=form)
        error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
        assert error <= bound, f"{precision}: {error:.1e}"


@pytest.mark.parametrize("precision", ["fixed23", "fixed15"])
@pytest.mark.parametrize("normalize", ["frobenius", "schatten", "aol", "spectral"])
def test_powers_of_two_change_nothing(precision, normalize):
    matrix = MATRICES["gaussian"][0].astype(np.float32)
    form = "standard" if normalize == "aol" else "auto"
    expected = muonium.orthogonalize(matrix, precision=precision, normalize=normalize, form=form)
    for power in (-60, -1, 7, 100):
        scaled = np.ldexp(matrix, power)
        found = muonium.orthogonalize(scaled, precision=precision, normalize=normalize, form=form)
        assert np.array_equal(found, expected), power


@pytest.mark.parametrize("precision", ["fixed23", "fixed15"])
def test_batches_types_and_orientation_change_nothing(precision):
    random = np.random.default_rng(6)
    batch = random.standard_normal((5, 48, 80)).astype(np.float16)
    together = muonium.orthogonalize(batch, precision=precision)
    for matrix, found in zip(batch, together):
        alone = muonium.orthogonalize(matrix.astype(np.float32), precision=precision)
        assert np.array_equal(alone.astype(np.float16), found)
        turned = muonium.orthogonalize(np.ascontiguousarray(matrix.T), precision=precision)
        assert np.array_equal(turned.T, found)


def checksum(precision):
    """Of results in every form and normalisation, and of ten steps of the optimizer."""
    state, values = 1, []
    for _ in range(3 * 40 * 70):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append(((state >> 48) - 2**15) / 2**15)
    batch = np.array(values, np.float32).reshape(3, 40, 70)
    digest = hashlib.sha256()
    for options in ({}, {"form": "standard"}, {"form": "gram"}, {"normalize": "schatten"},
                    {"normalize": "aol", "form": "standard"}, {"normalize": "spectral"}):
        digest.update(muonium.orthogonalize(batch, precision=precision, **options).tobytes())
    weights = {"a": batch[0].copy(), "b": batch[1].T.copy(), "v": batch[2, 0].copy()}
    optimizer = muonium.Optimizer(weights, precision=precision, lr=0.0625)
    for step in range(10):
        optimizer.step({"a": batch[step % 3], "b": batch[(step + 1) % 3].T, "v": batch[2, step]})
    for name in weights:
        digest.update(weights[name].tobytes())
    return digest.hexdigest()[:16]


# Of every CPU, compiler and number of threads. They change only if the method does.
CHECKSUMS = {"fixed23": "ffea0afff51bbab1", "fixed15": "a952e7b4bb43a70e"}


@pytest.mark.parametrize("precision", CHECKSUMS)
@pytest.mark.parametrize("threads", ["1", "7"])
@pytest.mark.parametrize("isa", SETS)
def test_the_same_bits_everywhere(isa, threads, precision):
    environment = {**os.environ, "MUONIUM_CPU": isa, "MUONIUM_NUM_THREADS": threads,
                   "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__, precision], env=environment, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if "MUONIUM_CPU is" in done.stderr:
        pytest.skip(f"this CPU or build has no {isa}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == CHECKSUMS[precision]


if __name__ == "__main__":
    print(checksum(sys.argv[1]))

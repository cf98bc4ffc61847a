"""examples/ggml/train.c, built and run with ggml itself, which the source package llama-cpp-python carries.

ggml is built once, in the user's cache directory.
"""
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["MUONIUM_BUILD_DIR"])
PACKAGE = "llama-cpp-python==0.3.36"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "muonium/ggml-0.3.36"
LIBRARIES = ["libggml.a", "libggml-cpu.a", "libggml-base.a"]
CMAKE = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DGGML_NATIVE=OFF", "-DGGML_OPENMP=OFF",
         "-DGGML_LLAMAFILE=OFF", "-DGGML_BUILD_TESTS=OFF", "-DGGML_BUILD_EXAMPLES=OFF"]


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def ggml():
    """The directory of the build, with include/ and the libraries."""
    if not (CACHE / "complete").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        done = run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries", "1",
                   "--no-binary", "llama-cpp-python", "-d", CACHE, PACKAGE)
        archives = list(CACHE.glob("*.tar.gz"))
        if not archives:
            pytest.skip(f"{PACKAGE} cannot be had from PyPI: {done.stderr.strip()[-300:]}")
        with tarfile.open(archives[0]) as archive:
            wanted = [m for m in archive.getmembers() if "/vendor/llama.cpp/ggml/" in m.name and m.isfile()]
            for member in wanted:
                member.name = member.name.split("/vendor/llama.cpp/ggml/")[1]
            archive.extractall(CACHE / "source", members=wanted, filter="data")
        (CACHE / "source/ggml.pc.in").touch()  # left out of the package
        for command in (["cmake", "-S", CACHE / "source", "-B", CACHE / "build", *CMAKE],
                        ["cmake", "--build", CACHE / "build", "-j", os.cpu_count(), "--target", "ggml"]):
            done = run(*command)
            assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        archives[0].unlink()
        (CACHE / "complete").touch()
    return CACHE


def test_trains(ggml, tmp_path):
    """Muonium takes ggml's gradients, and ends below ggml's own AdamW."""
    program = tmp_path / "train"
    include = [f"-I{ROOT}/include", f"-I{ggml}/source/include"]
    compiled = run("cc", "-std=c11", "-O2", "-Wall", "-Wextra", *include, "-c", ROOT / "examples/ggml/train.c",
                   "-o", tmp_path / "train.o")
    assert compiled.returncode == 0 and compiled.stderr == "", compiled.stderr
    linked = run("c++", tmp_path / "train.o", BUILD / "libmuonium.a", *(ggml / "build/src" / name for name in LIBRARIES),
                 "-lpthread", "-lm", "-ldl", "-o", program)
    assert linked.returncode == 0, linked.stderr
    trained = run(program, ROOT / "examples/gpt/data/austen.txt", 100)
    assert trained.returncode == 0, trained.stderr
    losses = {(name, int(step)): float(loss) for name, step, loss in
              re.findall(r"^(\w+) +step +(\d+)  loss ([\d.]+)$", trained.stdout, re.M)}
    assert set(losses) == {(name, step) for name in ("ggml", "muonium") for step in (50, 100)}
    assert losses["muonium", 100] < losses["ggml", 100] < losses["ggml", 50] < 4.5

"""The small programs in examples/: what they print is what they are to show."""

import pathlib
import re
import subprocess

from muonium_command import BUILD

ROOT = pathlib.Path(__file__).resolve().parents[2]


def output_of(name):
    done = subprocess.run(
        [str(BUILD / "examples" / name)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stderr == ""
    return done.stdout


def losses_in(text):
    return [float(number) for number in re.findall(r"^step +\d+  loss ([\d.]+)$", text, re.M)]


def test_smallest():
    text = output_of("smallest")
    losses = losses_in(text)
    assert len(losses) == 5 == len(text.splitlines())
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 1 and losses[-1] < 1e-3


def test_flat_buffer():
    text = output_of("flat_buffer")
    routes = {line.split()[0]: line.split()[1:] for line in text.splitlines()[:9]}
    muon = {name: " ".join(rest[1:]) for name, rest in routes.items() if rest[0] == "Muon"}
    assert muon == {
        "qkv": "6 matrices of 16 x 16",  # two layers of queries, keys and values
        "proj": "2 matrices of 16 x 16",
        "up": "2 matrices of 64 x 16",
        "down": "2 matrices of 16 x 64",
    }
    adamw = {name for name, rest in routes.items() if rest[0] == "AdamW"}
    assert adamw == {"wte", "wpe", "ln_1", "ln_2", "lm_head"}
    losses = losses_in(text)
    assert len(losses) == 4 and losses[0] > 2 and losses[-1] < 0.2


def test_ggml_compiles():
    """Against our declarations of ggml; `make compare` builds and runs it with ggml itself."""
    subprocess.run(
        ["cc", "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include",
         f"-I{ROOT}/tests/examples/ggml", f"{ROOT}/examples/ggml/train.c"],
        check=True, timeout=60)

"""The small programs in examples/: what they print is what they are to show."""

import json
import pathlib
import re
import subprocess

import numpy as np
import pytest

from muonium_command import BUILD
from safetensors_file import pack, write

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
    routes = {line.split()[0]: line.split()[1:] for line in text.splitlines()[:16]}
    muon = {name: " ".join(rest[1:]) for name, rest in routes.items() if rest[0] == "Muon"}
    assert muon == {
        "qkv.weight": "6 matrices of 16 x 16",  # two layers of queries, keys and values
        "proj.weight": "2 matrices of 16 x 16",
        "up.weight": "2 matrices of 64 x 16",
        "down.weight": "2 matrices of 16 x 64",
    }
    adamw = {name for name, rest in routes.items() if rest[0] == "AdamW"}
    assert {"wte", "wpe", "ln_1.weight", "qkv.bias", "ln_f.weight"} <= adamw and len(adamw) == 12
    losses = losses_in(text)
    assert len(losses) == 4 and losses[0] > 2 and losses[-1] < 0.2


V, P, C, L, BATCH, DISTANCE = 20, 9, 128, 2, 8, 3


def weights_of_gpt2(prefix=""):
    """A small GPT-2 as Hugging Face stores it: weights of layers are (in, out)."""
    random = np.random.default_rng(0)
    shapes = {"wte.weight": (V, C), "wpe.weight": (P, C), "ln_f.weight": (C,), "ln_f.bias": (C,)}
    for layer in range(L):
        for name, outs, ins in (("attn.c_attn", 3 * C, C), ("attn.c_proj", C, C), ("mlp.c_fc", 4 * C, C),
                                ("mlp.c_proj", C, 4 * C)):
            shapes.update({f"h.{layer}.{name}.weight": (ins, outs), f"h.{layer}.{name}.bias": (outs,)})
        shapes.update({f"h.{layer}.ln_{i}.{kind}": (C,) for i in (1, 2) for kind in ("weight", "bias")})
    return {prefix + name: (0.05 * random.standard_normal(shape) + ("ln_" in name and "weight" in name)).astype("f4")
            for name, shape in shapes.items()}


def loss_of_gpt2(w, tokens, targets):
    """GPT-2 in double precision, by its plain definition."""
    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    w = {name: value.astype("f8") for name, value in w.items()}
    count = len(tokens)
    x = w["wte.weight"][tokens] + w["wpe.weight"][:count]
    for layer in range(L):
        h = f"h.{layer}."
        q, k, v = (part.reshape(count, C // 64, 64).swapaxes(0, 1)
                   for part in np.split(linear(norm(x, h + "ln_1"), h + "attn.c_attn"), 3, axis=1))
        scores = q @ k.swapaxes(1, 2) / 8 + np.triu(np.full((count, count), -np.inf), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + linear((weights @ v).swapaxes(0, 1).reshape(count, C), h + "attn.c_proj")
        y = linear(norm(x, h + "ln_2"), h + "mlp.c_fc")
        x = x + linear(0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))), h + "mlp.c_proj")
    logits = norm(x, "ln_f") @ w["wte.weight"].T
    logits -= logits.max(-1, keepdims=True)
    return np.mean(np.log(np.exp(logits).sum(-1)) - logits[np.arange(count), targets])


def first_batch():
    """The tokens that the example draws first."""
    state = 1
    for _ in range(BATCH):
        tokens = []
        for _ in range(P):
            state = (state * 1664525 + 1013904223) % 2**32
            tokens.append((state >> 8) % V)
        yield tokens, [tokens[t - DISTANCE] if t >= DISTANCE else 0 for t in range(P)]


def run_flat_buffer(path, *arguments):
    return subprocess.run([str(BUILD / "examples/flat_buffer"), str(path), *arguments], capture_output=True,
                          text=True, timeout=120)


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_flat_buffer_reads_gpt2(tmp_path, prefix):
    write(tmp_path / "model.safetensors", {name: pack(x) for name, x in weights_of_gpt2(prefix).items()})
    done = run_flat_buffer(tmp_path / "model.safetensors", "30")
    assert done.returncode == 0 and done.stderr == ""
    assert "qkv.weight  Muon   6 matrices of 128 x 128\n" in done.stdout
    losses = losses_in(done.stdout)
    expected = np.mean([loss_of_gpt2(weights_of_gpt2(), *batch) for batch in first_batch()])
    assert losses[0] == pytest.approx(expected, abs=2e-4)  # four decimals, from sums in f32
    assert losses[-1] < losses[0] - 0.3


def test_flat_buffer_refuses_other_files(tmp_path):
    weights = weights_of_gpt2()
    for name, changed, message in (
            ("wpe.weight", None, "the file is no GPT-2"),
            ("h.1.mlp.c_fc.bias", np.zeros(C, "f4"), "mlp.c_fc.bias"),
            ("h.0.attn.c_attn.weight", np.zeros((3 * C, C), "f4"), "attn.c_attn.weight"),
            ("ln_f.bias", np.zeros(C, "f2"), "ln_f.bias")):
        kept = {**weights, name: changed} if changed is not None else {
            other: value for other, value in weights.items() if other != name}
        write(tmp_path / "model.safetensors", {other: pack(value) for other, value in kept.items()})
        done = run_flat_buffer(tmp_path / "model.safetensors")
        assert done.returncode == 1 and message in done.stderr and done.stdout == ""
    assert "nothing.safetensors" in run_flat_buffer(tmp_path / "nothing.safetensors").stderr


def test_ggml_compiles():
    """Against our declarations of ggml; `make compare` builds and runs it with ggml itself."""
    subprocess.run(
        ["cc", "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include",
         f"-I{ROOT}/tests/examples/ggml", f"{ROOT}/examples/ggml/train.c"],
        check=True, timeout=60)


def test_every_example_has_its_result():
    """The table has the results of examples/results.json, which tools/measure-examples writes; each is of a
    command that exists and of a program that prints what it printed."""
    subprocess.run([str(ROOT / "tools/measure-examples"), "--check"], check=True)
    page = (ROOT / "examples/README.md").read_text("utf-8")
    results = json.loads((ROOT / "examples/results.json").read_text("utf-8"))
    rows = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\) \|.*\| (.+) \|$", page, re.M)
    assert {name for name, _ in rows} == {"gpt/README.md", *results} and len(rows) == 8
    version = re.search(r'MUONIUM_VERSION_STRING "([\d.]+)"', (ROOT / "include/muonium.h").read_text())[1]
    assert all(result["version"] == version for result in results.values())
    for name in ("smallest", "flat_buffer"):  # quick, but the rounding of other CPUs differs
        printed, kept = losses_in(output_of(name)), losses_in("\n".join(results[f"{name}.c"]["output"]))
        assert printed[0] == pytest.approx(kept[0], abs=2e-4) and len(printed) == len(kept)

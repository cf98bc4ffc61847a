"""Every code block of README and docs is executed, or is listed here with the reason why it cannot be.

The tutorial and the session of docs/checkpoints.md are executed by test_docs.py and
test_docs_checkpoints.py. Here: blocks of Python run, page by page, in one namespace with what the text
says that the reader has; blocks of C are compiled; lines of commands name commands, options, targets and
files that exist. What is printed under a command is compared where the two tests above do so."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import torch_isa
from muonium_command import BUILD, MUONIUM, run

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGES = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", SOURCE / "python/README.md",
         *sorted((SOURCE / "docs").glob("*.md")), *sorted((SOURCE / "docs/site").glob("*.md")),
         *sorted((SOURCE / "examples").rglob("*.md"))]
ELSEWHERE = {"docs/tutorial.md", "docs/checkpoints.md"}  # whole sessions, run by the other tests
DRAWINGS = {"docs/design.md", "docs/kernels.md"}  # a diagram in the first block
OUTPUT = {"docs/reliability.md": "what runs of minutes printed; the tests that ran are named beside it"}
# Pages whose Python needs what Debian does not have. Their blocks are only parsed, and the names that
# they take from Muonium must exist where the module can be imported.
PARSED = {"docs/jax.md": "JAX", "docs/pytorch.md": "PyTorch 2 and its frameworks"}
# Blocks by their first line.
NOT_RUN = {
    "import muonium.optax": "JAX",
    'host = [torch.nn.Parameter(p.detach().to("cpu").pin_memory()) for p in model.parameters()]': "a GPU",
}

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)


def name_of(path):
    return str(path.relative_to(SOURCE))


def blocks_of(path):
    """(language, text) of the fenced blocks, without their indentation."""
    return [(language, re.sub(rf"^{indent}", "", text, flags=re.M))
            for indent, language, text in BLOCK.findall(path.read_text("utf-8"))]


def of_language(wanted):
    return [pytest.param(path, [text for language, text in blocks_of(path) if language == wanted],
                         id=name_of(path))
            for path in PAGES
            if name_of(path) not in ELSEWHERE and any(language == wanted for language, _ in blocks_of(path))]


def test_every_block_is_of_a_known_kind():
    for path in PAGES:
        languages = {language for language, _ in blocks_of(path)}
        assert languages <= {"", "c", "python", "sh", "text"}, path
        if "sh" in languages:
            assert name_of(path) in ELSEWHERE, path
        if "text" in languages:
            assert name_of(path) in ELSEWHERE | set(OUTPUT), path


# ---- Python ----

# What the text takes for granted: a model with its data, arrays by name, the state of another optimizer.
PRELUDE = """
import copy, os, numpy, torch, muonium, muonium.torch
torch.manual_seed(0)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(64, 2304)
        self.up = torch.nn.Linear(2304, 64)
        self.head = torch.nn.Linear(64, 8)
    def forward(self, x):
        return self.head(torch.tanh(self.up(torch.tanh(self.qkv(x)))))

model = Model()
named = list(model.named_parameters())
hidden = [p for n, p in named if p.ndim == 2 and "head" not in n]
others = [p for n, p in named if p.ndim == 1 or "head" in n]
experts = [("experts", torch.nn.Parameter(torch.randn(3, 16, 24)))]
convolutions = [("convolution", torch.nn.Parameter(torch.randn(8, 8, 3, 3)))]
scores = [("scores", torch.nn.Parameter(torch.randn(8, 8)))]
data = [torch.randn(16, 64) for _ in range(3)]

def loss(model, batch):
    return model(batch).square().mean()

def gradients_of(model):
    loss(model, data[0]).backward()

gradients_of(model)
other = muonium.torch.Muon(named)
other.step()
torch.save({"optimizer": other.state_dict()}, "checkpoint.pt")
parameters = {"h.0.mlp.w": numpy.ones((24, 16), "f4"), "ln.bias": numpy.ones(16, "f4")}
gradients = {name: numpy.full_like(value, 0.5) for name, value in parameters.items()}
dw, db = numpy.ones((3072, 768), "f4"), numpy.ones(3072, "f4")
"""


def without_jax(text):
    """JAX is not in Debian: its functions that the pages use are those of NumPy."""
    return text.replace("jax.numpy.array", "numpy.array")


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="PyTorch is not instrumented")
@pytest.mark.parametrize("path, blocks", of_language("python"))
def test_python(path, blocks, tmp_path):
    if name_of(path) in PARSED:
        for text in blocks:
            compile(text, str(path), "exec")
        return
    torch_isa.prepare()
    pytest.importorskip("torch")
    program = PRELUDE
    for text in blocks:
        if text.splitlines()[0] in NOT_RUN:
            compile(text, str(path), "exec")
            continue
        # A model of the page's arrays, where it speaks of one.
        if "model.items()" in text:
            program += "model, grads = parameters, gradients\n"
        program += without_jax(text)
        if "model.items()" in text:
            program += "model = Model()\n"
    (tmp_path / "page.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240,
        env={**os.environ, "PYTHONPATH": str(SOURCE / "python"), "MUONIUM_LIBRARY": str(BUILD / "libmuonium.so")})
    assert done.returncode == 0, done.stderr


def test_what_is_not_run_is_still_there():
    first = {text.splitlines()[0] for path in PAGES for language, text in blocks_of(path)}
    pages = " ".join(name_of(path) for path in PAGES)
    assert all(line in first for line in NOT_RUN) or "docs/pytorch.md" in pages


# ---- C ----

NAMES = """
#include <muonium.h>
typedef int MPI_Comm;
extern MPI_Comm MPI_COMM_WORLD;
typedef struct muonium_mpi muonium_mpi;
muonium_status muonium_mpi_create(MPI_Comm, muonium_optimizer *, const void *, muonium_mpi **);
muonium_status muonium_mpi_step(muonium_mpi *);
extern muonium_options options;
extern muonium_optimizer *opt;
extern muonium_tensor tensor;
extern muonium_mpi *dist;
extern float *weights, *gradients;
"""


@pytest.mark.parametrize("path, blocks", of_language("c"))
def test_c(path, blocks, tmp_path):
    for number, text in enumerate(blocks):
        whole = "int main" in text
        program = text if whole else f"{NAMES}void page(void)\n{{\n{text}\n}}\n"
        (tmp_path / f"{number}.c").write_text(program)
        done = subprocess.run(["cc", "-std=c11", "-fsyntax-only", "-Wall", "-Wno-unused-variable", "-Werror",
                               f"-I{SOURCE}/include", f"{number}.c"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


# ---- commands ----


def command_lines(path):
    """The lines of commands: in blocks without a language, and in indented ones."""
    text = path.read_text("utf-8")
    lines = [line for language, block in blocks_of(path) if not language for line in block.splitlines()]
    lines += re.findall(r"^    (\S.*)$", BLOCK.sub("", text), re.M)
    return [re.sub(r"\s+#.*", "", line).removeprefix("$ ") for line in lines]


def options_of(command, cache={}):
    if command not in cache:
        cache[command] = set(re.findall(r"--[a-z][a-z0-9-]*", run(command, "--help")[0]))
    return cache[command]


TARGETS = set(re.findall(r"^([a-z]+):.*##", (SOURCE / "Makefile").read_text(), re.M))
COMMANDS = set(re.findall(r"^  ([a-z-]+)  ", run("--help")[0], re.M))


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_commands_name_what_exists(path):
    for line in command_lines(path):
        words = line.split()
        if not words:
            continue
        program = re.sub(r"^build/(?=muonium$)", "", words[0])
        if program == "muonium" and len(words) > 1 and re.match(r"[a-z-]+$", words[1]):
            if words[1].startswith("--"):
                continue
            assert words[1] in COMMANDS, line
            for word in words[2:]:
                option = re.match(r"--[a-z][a-z0-9-]*", word)
                assert not option or option[0] in options_of(words[1]), (line, word)
        elif program == "make" and len(words) > 1:
            assert words[1] in TARGETS, line
        elif re.match(r"(tools|bench|tests|\.ci)/", program):
            assert (SOURCE / program).exists(), line
        elif program == "python3" and "/" in words[1]:
            assert (SOURCE / words[1]).exists(), line

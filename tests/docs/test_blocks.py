"""Every code block of README and docs is executed, or is listed here with the reason why it cannot be.

The tutorial and the session of docs/checkpoints.md are executed by test_docs.py and
test_docs_checkpoints.py, blocks that need JAX, PyTorch 2 or its frameworks by
tests/compare/test_pages.py. Here: all other blocks of Python run, page by page, in one namespace with
what the text says that the reader has; blocks of C are compiled; lines of commands name commands,
options, targets and files that exist."""

import os
import re
import subprocess
import sys

import pytest

import torch_isa
from muonium_command import BUILD, run
from pages import BLOCK, PAGES, SOURCE, blocks_of, name_of, python_of

# Pages of whole sessions, and the tests that run them.
ELSEWHERE = {"docs/tutorial.md": "test_docs.py", "docs/checkpoints.md": "test_docs_checkpoints.py"}
# Blocks that are not run, by page, with the reason.
OUTPUT = {"docs/reliability.md": "what runs of minutes printed; the tests that ran are named beside it",
          "docs/distributed.md": "losses of the MPI example after a minute of training"}
DRAWINGS = {"docs/design.md": "the layers as a diagram", "docs/kernels.md": "packing as a diagram"}
FORMULAS = {"docs/direct.md", "docs/numerics.md"}  # indented lines with letters beyond ASCII
TABS = {"docs/site/index.md": "indented lines are the text of tabs; their blocks are fenced"}
# What lines of commands begin with. They are not run, because they take minutes, install something, need
# another machine or a file of the reader's: what they name is checked instead. Sessions, which begin with
# "$ muonium" and show what is printed, are run.
PROGRAMS = {"muonium", "make", "pip", "python3", "mpirun", "torchrun", "cmake"}


def of_language(wanted):
    return [pytest.param(path, [text for language, text in blocks_of(path) if language == wanted],
                         id=name_of(path))
            for path in PAGES
            if name_of(path) not in ELSEWHERE and any(language == wanted for language, _ in blocks_of(path))]


def test_every_block_is_of_a_known_kind():
    for path in PAGES:
        name, languages = name_of(path), {language for language, _ in blocks_of(path)}
        assert languages <= {"", "c", "python", "sh", "text"}, path
        if "sh" in languages:
            assert name in ELSEWHERE, path
        if "text" in languages:
            assert name in {*ELSEWHERE, *OUTPUT, *DRAWINGS}, path


def test_what_is_listed_is_there():
    languages = {name_of(path): {language for language, _ in blocks_of(path)} for path in PAGES}
    for name, test in ELSEWHERE.items():
        assert {"sh", "text"} <= languages[name]
        assert f'"{name}"' in (SOURCE / "tests/docs" / test).read_text()
    assert all("text" in languages[name] for name in {**OUTPUT, **DRAWINGS})


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
@pytest.mark.parametrize("path", [pytest.param(path, id=name_of(path)) for path in PAGES
                                  if python_of(path, from_pypi=False)])
def test_python(path, tmp_path):
    torch_isa.prepare()
    pytest.importorskip("torch")
    program = PRELUDE
    for text in python_of(path, from_pypi=False):
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


def commands_of(path):
    """Commands in blocks without a language, and in indented ones; continued lines are joined."""
    blocks = [text for language, text in blocks_of(path) if not language and not text.startswith("$ ")]
    if name_of(path) not in TABS:
        rest = BLOCK.sub("", path.read_text("utf-8"))
        blocks += ["\n".join(re.findall(r"^    (\S.*)$", rest, re.M))]
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            formula = name_of(path) in FORMULAS and not line.isascii()
            line = re.sub(r"\s+#.*", "", line).strip()
            if line and not formula:
                yield line


def options_of(command, cache={}):
    if command not in cache:
        cache[command] = set(re.findall(r"--[a-z][a-z0-9-]*", run(command, "--help")[0]))
    return cache[command]


TARGETS = set(re.findall(r"^([a-z]+):.*##", (SOURCE / "Makefile").read_text(), re.M))
COMMANDS = set(re.findall(r"^  ([a-z-]+)  ", run("--help")[0], re.M))


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_commands_name_what_exists(path):
    for line in commands_of(path):
        words = [word for word in line.split() if not re.match(r"[A-Z_]+=", word)]
        program = re.sub(r"^build/(?=muonium$)", "", words[0])
        if program == "muonium":
            assert words[1] in COMMANDS, line
            for word in words[2:]:
                option = re.match(r"--[a-z][a-z0-9-]*", word)
                assert not option or option[0] in options_of(words[1]), (line, word)
        elif program == "make":
            assert len(words) == 1 or words[1] in TARGETS, line
        elif re.match(r"(tools|bench|examples|tests|\.ci)/", program):
            assert (SOURCE / program).exists(), line
        elif program == "python3":
            assert (SOURCE / words[1]).exists(), line
        else:
            assert program in PROGRAMS, line


def sessions():
    """The page, the command and what it prints, of blocks that begin with `$ `."""
    for path in PAGES:
        for language, text in blocks_of(path):
            if not language and text.startswith("$ "):
                for session in re.split(r"^\$ ", text, flags=re.M)[1:]:
                    command, _, shown = session.partition("\n")
                    yield name_of(path), command.split(), shown.splitlines()


RUN = [pytest.param(command, shown, id=f"{name}-{' '.join(command[:4])}")
       for name, command, shown in sessions() if command[0] == "muonium"]


@pytest.mark.parametrize("command, shown", RUN)
def test_sessions_print_what_is_shown(command, shown):
    printed, errors = run(*command[1:])
    assert not errors
    assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in shown if line]


def test_other_sessions_have_their_test():
    """That of the README is run by test_docs.py."""
    others = [(name, command[:2]) for name, command, _ in sessions() if command[0] != "muonium"]
    assert others == [("README.md", ["cc", "smallest.c"])]

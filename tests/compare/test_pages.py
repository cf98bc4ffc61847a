"""The Python on the pages that need JAX, PyTorch 2 or its frameworks: every block runs, page by page, in one
namespace with what the text says that the reader has. And the optimizers of docs/moving.md are those that they
replace. All other blocks are run by tests/docs/test_blocks.py."""
import math
import os
import re
import subprocess
import sys

import pytest
import timm
import torch

import beside

sys.path.append(str(beside.ROOT / "tests/docs"))
from pages import PAGES, blocks_of, name_of, python_of  # noqa: E402

import muonium.torch  # noqa: E402

torch.set_num_threads(1)

# By the first line of a block: what the reader has before it, and what is done with it afterwards.
PYTORCH = """
import os, warnings
warnings.simplefilter("ignore")
import accelerate, lightning, torch, transformers
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import fully_shard
import muonium.torch

torch.manual_seed(0)
torch.set_num_threads(1)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(40, 16)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(2))
        self.head = torch.nn.Linear(16, 40)
    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x)

def loss_of(model):
    tokens = torch.arange(80).reshape(2, 40) % 40
    return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), (7 * tokens.flatten() + 3) % 40)

def learns(model, optimizer):
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
"""
AROUND = {
    "trainer = transformers.Trainer(": ("""
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=97, n_positions=16, n_embd=32, n_layer=2, n_head=2))
arguments = transformers.TrainingArguments("run", max_steps=2, per_device_train_batch_size=4, save_strategy="no",
                                           use_cpu=True, report_to=[], disable_tqdm=True)
data = [{"input_ids": row, "labels": row} for row in torch.randint(97, (8, 12))]
""", """
trainer.train()
assert trainer.optimizer.optimizer.counters()["steps"] == 2
"""),
    "def configure_optimizers(self):                                    # Lightning": ("""
model, accelerator = Model(), accelerate.Accelerator(cpu=True)
""", """
learns(model, optimizer)

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()
    def training_step(self, batch, index):
        return loss_of(self.model)

Module.configure_optimizers = configure_optimizers
module = Module()
before = module.model.head.weight.detach().clone()
lightning.Trainer(max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                  enable_model_summary=False).fit(module, torch.utils.data.DataLoader(range(2)))
assert not torch.equal(before, module.model.head.weight)
"""),
    "for layer in model.layers:": ("""
os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
shard = fully_shard
fully_shard = lambda module: shard(module, mesh=mesh)
model = Model()
""", """
learns(model, optimizer)
"""),
    'state = {"optimizer": get_optimizer_state_dict(model, optimizer)}': ("""
path = "checkpoint"
""", """
dist.destroy_process_group()
"""),
    "optimizer = muonium.torch.OffloadMuon(model.named_parameters(), lr=3e-4, recipe=\"muonium\", max_norm=1.0)": ("""
model = Model()
""", """
learns(model, optimizer)
"""),
    # torchao's own needs a device; test_torch_offload.py has a stand-in for one.
    "optimizer = CPUOffloadOptimizer(model.parameters(), muonium.torch.Muon, lr=3e-4, recipe=\"muonium\")": ("""
def CPUOffloadOptimizer(parameters, kind, **options):
    return kind(parameters, **options)
model = Model()
""", """
learns(model, optimizer)
"""),
    "step = torch.compile(lambda g: 0.2 * torch.ops.muonium.orthogonalize(g), fullgraph=True)": ("""
compiled = torch.compile
torch.compile = lambda function, **options: compiled(function, backend="aot_eager", **options)
""", """
g = torch.randn(8, 12)
assert torch.equal(step(g), 0.2 * torch.ops.muonium.orthogonalize(g))
"""),
    "dion.Muon(params, newton_schulz_func=muonium.torch.newton_schulz)                     # called as f(x, epsilon=...)": ("""
import types
os.environ["TORCHDYNAMO_DISABLE"] = "1"
params, called = [], []
# Dion is not on PyPI. Its Muon calls the function with these arguments.
dion = types.SimpleNamespace(Muon=lambda params, newton_schulz_func: called.append(
    newton_schulz_func(g, epsilon=torch.tensor(1e-8))))
""", """
assert called[0].shape == g.shape
assert original_muon.muon_update(g.clone(), torch.zeros_like(g), ns_method="standard").norm() > 1
"""),
}
JAX = """
import functools, jax, jax.numpy as jnp, optax
from flax import nnx

schedule = optax.constant_schedule(0.02)

class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed, self.mlp, self.head = nnx.Embed(17, 24, rngs=rngs), nnx.Linear(24, 24, rngs=rngs), nnx.Linear(24, 17, rngs=rngs)
    def __call__(self, tokens):
        return self.head(nnx.tanh(self.mlp(self.embed(tokens))))

batch = jnp.arange(34).reshape(2, 17) % 17

def loss_of(model, batch):
    return optax.softmax_cross_entropy_with_integer_labels(model(batch), (5 * batch + 1) % 17).mean()
"""
AROUND.update({
    "import muonium.optax\nfrom flax import nnx": ("", """
losses = [float(step(model, optimizer, batch)) for _ in range(8)]
assert losses[-1] < losses[0], losses
"""),
    "def numbers(params):": ("", """
params = {"embedding": jnp.ones((17, 24)), "mlp": jnp.eye(24), "bias": jnp.zeros(24)}
found = numbers(params)
assert found["mlp"] is not None and found["embedding"] is None and found["bias"] is None
loss_of = lambda params, batch: jnp.square(params["embedding"][batch] @ params["mlp"] + params["bias"]).mean()
"""),
    "state = optimizer.init(params)": ("", """
losses = []
for _ in range(8):
    params, state, loss = step(params, state, batch)
    losses.append(float(loss))
assert losses[-1] < losses[0], losses
x, batch = jnp.ones((8, 12)), jnp.ones((3, 8, 12))
"""),
    'cpu = jax.devices("cpu")[0]': ("""
grads = jax.tree.map(jnp.ones_like, params)
""", """
assert jax.tree.structure(updates) == jax.tree.structure(params)
"""),
})
PRELUDES = {"docs/pytorch.md": PYTORCH, "docs/jax.md": JAX}


def around(text):
    """What belongs before and after a block: by its first line, or its first two."""
    lines = text.splitlines()
    return AROUND.get("\n".join(lines[:2])) or AROUND.get(lines[0]) or ("", "")


WITH_BLOCKS = [pytest.param(path, id=name_of(path)) for path in PAGES if python_of(path, from_pypi=True)]


@pytest.mark.parametrize("path", WITH_BLOCKS)
def test_every_block_runs(path, tmp_path):
    program = PRELUDES.get(name_of(path), "")
    for text in python_of(path, from_pypi=True):
        before, after = around(text)
        program += before + text + after
    (tmp_path / "page.py").write_text(program)
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(beside.ROOT / "python")})
    assert done.returncode == 0, done.stderr


def test_what_is_put_around_blocks_has_a_block():
    found = [around(text) for path in PAGES for text in python_of(path, from_pypi=True)]
    assert all(pair in found for pair in AROUND.values())


@pytest.mark.parametrize("example", ["torch/train.py", "jax/train.py", "jax/train_flax.py"])
def test_examples_train(example):
    """Four steps: both optimizers lower the loss, and Muonium no less than half as much as AdamW."""
    done = subprocess.run([sys.executable, beside.ROOT / "examples" / example, "--steps", "4"],
                          capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(beside.ROOT / "python")})
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"adamw .*: loss (\S+) after 4 .*\nmuonium .*: loss (\S+) after 4 .*\n.*\n", done.stdout)
    adamw, ours = (math.log(75) - float(loss) for loss in found.groups())  # 75 characters
    assert adamw > 0.3 and ours > adamw / 2, done.stdout


# ---- docs/moving.md: what is written in place of an optimizer does what that did ----





class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(24, 16)
        self.up, self.down = torch.nn.Linear(16, 40), torch.nn.Linear(40, 16)
        self.head = torch.nn.Linear(16, 24, bias=False)


def block_with(text):
    (block,) = [block for path in PAGES if path.name == "moving.md" for language, block in blocks_of(path)
                if language == "python" and text in block]
    return block


def uncommented(block):
    """The optimizers that a block replaces."""
    return "\n".join(line[2:] for line in block.splitlines() if line.startswith("# "))


def run(code, steps=20, switch=""):
    """The parameters after steps of every optimizer that `code` makes for the model, and before them.
    `switch` is executed after half of the steps, and makes others."""
    model = Model()
    named = dict(model.named_parameters())
    before = {name: p.detach().clone().numpy() for name, p in named.items()}
    names = {"model": model, "torch": torch, "timm": timm, "muonium": muonium,
             "hidden": [named["up.weight"], named["down.weight"]],
             "others": [p for name, p in named.items() if name not in ("up.weight", "down.weight")]}
    exec(code, names)
    grads = beside.gradients({name: p.shape for name, p in named.items()}, steps)
    for step in range(steps):
        if step == steps // 2:
            exec(switch, names)
        for name, p in named.items():
            p.grad = torch.from_numpy(grads[step][name])
        optimizers = [value for value in names.values() if isinstance(value, torch.optim.Optimizer)]
        assert len(optimizers) == ("muon" in names) + 1
        for optimizer in optimizers:
            optimizer.step()
    return {name: p.detach().numpy() for name, p in named.items()}, before


def assert_same_steps(ours, theirs, before):
    """Both iterate in bf16. What has AdamW agrees to f32, and is compared apart."""
    beside.assert_beside(ours, theirs, before, beside.BF16, steps=20)
    adamw = [name for name in before if name not in ("up.weight", "down.weight")]
    beside.assert_beside(*({name: values[name] for name in adamw} for values in (ours, theirs, before)),
                         steps=20)


@pytest.mark.filterwarnings("error:the parameters have no names")
def test_from_torch_muon():
    block = block_with("torch.optim.Muon(")
    theirs, before = run(uncommented(block))
    assert_same_steps(run(block)[0], theirs, before)


@pytest.mark.filterwarnings("error:the parameters have no names")
def test_from_torch_muon_in_the_middle_of_a_run():
    block, loading = block_with("torch.optim.Muon("), block_with("def joined(")
    theirs, before = run(uncommented(block))
    ours, _ = run(uncommented(block), switch=f"{block}\n{loading}\n{uncommented(loading)}\ndel muon, adamw\n")
    assert_same_steps(ours, theirs, before)


def test_from_timm():
    block = block_with("timm.optim")
    theirs, before = run(uncommented(block))
    beside.assert_beside(run(block)[0], theirs, before, beside.BF16, steps=20)

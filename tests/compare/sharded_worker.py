"""What the processes of test_torch_sharded.py do: see there. Every check is an assertion."""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as dcp_state
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

import beside  # noqa: F401, finds the package

import muonium
import muonium.torch
from muonium._options import CHOICES
from muonium.torch import Muon

STEPS, SAVED = 30, 12
OPTIONS = {"lr": 1e-3, "recipe": "muonium", "weight_decay": 0.1}
FIXED = [{}, {"momentum_form": "sum", "nesterov": False}, {"decay": "cautious"},
         {"momentum_form": "ema_corrected"}, {"maximize": True, "decay": "independent"},
         {"recipe": "torch", "precision": "f32", "routing": "muonium"}, {"heads": 2},
         {"adaptive": True}, {"equilibrate": True, "renormalize": True}, {"state_dtype": "bf16"}]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(40, 20)
        self.up, self.down = torch.nn.Linear(20, 34), torch.nn.Linear(34, 20)
        self.mix = torch.nn.Linear(20, 20, bias=False)
        self.norm, self.scale = torch.nn.LayerNorm(20), torch.nn.Parameter(torch.ones(1))
        self.head = torch.nn.Linear(20, 40)

    def forward(self, x):
        y = self.embedding(x)
        y = y + self.down(torch.nn.functional.gelu(self.up(y)))
        return self.head(self.norm(y + self.scale * self.mix(y)))


def net():
    torch.manual_seed(0)
    return Net()


def sharded(mesh, **options):
    model = net()
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def train(model, optimizer, steps, first=0):
    for step in range(first, first + steps):
        tokens = torch.randint(40, (96,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(tokens), (7 * tokens + 3) % 40).backward()
        optimizer.step()


def whole(p):
    return p.full_tensor() if isinstance(p, DTensor) else p


def apart(found, expected):
    """The distance, relative to the size, of the worst parameter."""
    pairs = dict(expected)
    return max(((whole(p).detach() - pairs[name].detach()).norm() / pairs[name].detach().norm()).item()
               for name, p in found)


def reference(steps, **options):
    model = net()
    optimizer = Muon(model, **{**OPTIONS, **options})
    train(model, optimizer, steps)
    return model, optimizer


def assert_apart(found, expected, limit, what):
    distance = apart(found.named_parameters(), expected.named_parameters())
    assert distance <= limit, f"{what}: {distance:.1e} apart, allowed {limit:.0e}"


# ---- equal to one process ----


def check_fsdp2(mesh, path):
    for options in ({}, {"offload_policy": CPUOffloadPolicy(pin_memory=False)}):
        model = sharded(mesh, **options)
        optimizer = Muon(model, **OPTIONS)
        train(model, optimizer, STEPS)
        assert_apart(model, reference(STEPS)[0], 1e-6, "FSDP2")
    routes = {report.name: report.optimizer for report in optimizer.report()}
    assert [n for n, route in routes.items() if route == "muon"] == [
        "up.weight", "down.weight", "mix.weight"] and len(routes) == len(list(net().parameters()))
    for p in (model.up.weight, model.mix.weight):
        momentum = optimizer.state[p]["momentum_buffer"]
        assert isinstance(momentum, DTensor) and momentum.placements == p.placements
    check_bytes(optimizer, mesh)


def check_bytes(optimizer, mesh):
    """Direction and update of what others own, as f32, and nothing else."""
    sent = torch.tensor(float(optimizer.counters()["bytes_sent"]) / STEPS)
    dist.all_reduce(sent)
    elements = 20 * 34 + 34 * 20 + 20 * 20
    needed = 2 * 4 * elements * (mesh.size() - 1) / mesh.size()
    assert abs(sent.item() - needed) <= 0.05 * needed, (sent.item(), needed)


def fixed_steps(parameters, optimizer, steps=STEPS):
    """Gradients that do not depend on the parameters, so that rounding is not amplified."""
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        for p in parameters:
            g = torch.randn(p.shape, generator=generator)
            g = g.to(p.dtype)
            p.grad = distribute_tensor(g, p.device_mesh, p.placements) if isinstance(
                p, DTensor) else g
        optimizer.step()


def weights(options):
    generator = torch.Generator().manual_seed(99)
    made = {"wide": torch.randn(8, 20, generator=generator),
            "tall": torch.randn(22, 6, generator=generator)}
    if "heads" not in options:  # which a vector cannot have
        made["vector"] = torch.randn(9, generator=generator)
    return made


def check_options(mesh, path):
    """Every option that acts on shards, rows or columns sharded; replicas bit for bit."""
    for options in FIXED:
        options = {**OPTIONS, **options}
        plain = {name: torch.nn.Parameter(w) for name, w in weights(options).items()}
        fixed_steps(plain.values(), Muon(list(plain.items()), **options))
        for placement, limit in ((Shard(0), 1e-6), (Shard(1), 1e-6), (Replicate(), 0.0)):
            placed = {name: torch.nn.Parameter(distribute_tensor(
                w, mesh, [Shard(0) if w.ndim == 1 and placement.is_shard() else placement]))
                for name, w in weights(options).items()}
            fixed_steps(placed.values(), Muon(list(placed.items()), **options))
            distance = apart(placed.items(), plain.items())
            # A momentum that is rounded to bf16 may round the other way, by 2^-8 of an element.
            limit = 2.0**-8 if limit and "state_dtype" in options else limit
            assert distance <= limit, (options, placement, distance)


# ---- checkpoints ----


def checkpoint_of(model, optimizer):
    return {"model": dcp_state.get_model_state_dict(model),
            "optimizer": dcp_state.get_optimizer_state_dict(model, optimizer)}


def check_save(mesh, path):
    model = sharded(mesh)
    optimizer = Muon(model, **OPTIONS)
    before = [whole(p).clone() for p in model.parameters()]
    made = checkpoint_of(model, optimizer)  # makes the state
    assert all(torch.equal(whole(p), q) for p, q in zip(model.parameters(), before))
    assert len(made["optimizer"]["state"]) == len(before)
    train(model, optimizer, SAVED)
    dcp.save(checkpoint_of(model, optimizer), checkpoint_id=path)


def check_load(mesh, path):
    model = sharded(mesh)
    optimizer = Muon(model, **{**OPTIONS, "lr": 1.0})
    optimizer.init_state()
    assert all("step" in optimizer.state[p] for p in model.parameters())
    kept = checkpoint_of(model, optimizer)
    dcp.load(kept, checkpoint_id=path)
    dcp_state.set_model_state_dict(model, kept["model"])
    dcp_state.set_optimizer_state_dict(model, optimizer, kept["optimizer"])
    assert {group["lr"] for group in optimizer.param_groups} == {OPTIONS["lr"]}
    train(model, optimizer, STEPS - SAVED, SAVED)
    expected = reference(STEPS)
    assert_apart(model, expected[0], 1e-6, "resumed")
    options = dcp_state.StateDictOptions(full_state_dict=True)
    full = dcp_state.get_optimizer_state_dict(model, optimizer, options=options)
    if mesh.get_rank() == 0:
        momentum = full["state"]["up.weight"]["momentum_buffer"]
        own = expected[1].state[expected[0].up.weight]["momentum_buffer"]
        assert (momentum - own).norm() <= 1e-5 * own.norm()
        assert full["state"]["up.weight"]["step"] == STEPS


def check_state_dict(mesh, path):
    """Of torch's own form, by keyword, within one world size: bit for bit."""
    model = sharded(mesh)
    optimizer = Muon(model, **OPTIONS)
    train(model, optimizer, 3)
    again = sharded(mesh)
    for p, q in zip(again.parameters(), model.parameters()):
        p.data.copy_(q.data)
    other = Muon(again, **OPTIONS)
    other.load_state_dict(state_dict=optimizer.state_dict())
    train(model, optimizer, 3, 3)
    train(again, other, 3, 3)
    assert all(torch.equal(p._local_tensor, q._local_tensor)
               for p, q in zip(model.parameters(), again.parameters()))


# ---- other hosts, and errors ----


def check_ddp(mesh, path):
    class Half(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.unused = net(), torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.net(x)

    model = Half()
    before = model.unused.weight.detach().clone()
    wrapped = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    train(wrapped, Muon(wrapped, **OPTIONS), STEPS)
    assert torch.equal(model.unused.weight, before)
    assert_apart(model.net, reference(STEPS)[0], 1e-6, "DDP")


def check_zero(mesh, path):
    """torch's ZeroRedundancyOptimizer, which gives each rank some parameters, without names."""
    model, plain = net(), net()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    train(wrapped, ZeroRedundancyOptimizer(wrapped.parameters(), Muon, **OPTIONS), STEPS)
    train(plain, Muon(plain.parameters(), **OPTIONS), STEPS)
    assert_apart(model, plain, 1e-6, "ZeroRedundancyOptimizer")


def check_hsdp(mesh, path):
    """One mesh dimension replicates, one shards; with f32 and with bf16 parameters."""
    square = init_device_mesh("cpu", (2, mesh.size() // 2), mesh_dim_names=("replicate", "shard"))
    model = sharded(square)
    train(model, Muon(model, **OPTIONS), STEPS)
    assert_apart(model, reference(STEPS)[0], 1e-6, "HSDP")
    for kind, limit in ((torch.float32, 1e-6), (torch.bfloat16, 2.0**-8)):
        plain = {name: torch.nn.Parameter(w.to(kind)) for name, w in weights({}).items()}
        placed = {name: torch.nn.Parameter(distribute_tensor(w.to(kind), square, [Replicate(), Shard(0)]))
                  for name, w in weights({}).items()}
        before = {name: p.detach().clone() for name, p in plain.items()}
        for named in (plain, placed):
            fixed_steps(named.values(), Muon(list(named.items()), **{**OPTIONS, "lr": 1e-2}))
        assert apart(placed.items(), plain.items()) <= limit
        assert apart(plain.items(), before.items()) > 8 * limit


def refused(error, *words):
    """Run a function, and see it refused on every rank."""
    def check(function):
        try:
            function()
        except error as found:
            assert all(word in str(found) for word in words), found
        else:
            raise AssertionError(f"not refused: {words}")
    return check


def check_errors(mesh, path):
    for originals in (True, False):  # flat pieces of parameters, or one flat parameter
        flat = FullyShardedDataParallel(net(), device_id=torch.device("cpu"),
                                        use_orig_params=originals)
        for given in (flat, flat.parameters()):
            refused(TypeError, "FSDP1", "fully_shard")(lambda given=given: Muon(given, **OPTIONS))
    optimizer = Muon(net(), **OPTIONS)  # ZeRO puts one flat partition in the place of a group's
    optimizer.param_groups[0]["params"] = [torch.nn.Parameter(torch.zeros(99))]
    refused(TypeError, "ZeRO", "fully_shard")(optimizer.step)
    zero_3 = torch.nn.Parameter(torch.zeros(0))
    zero_3.ds_id = 1
    refused(TypeError, "ZeRO 3", "'w'")(lambda: Muon([("w", zero_3)], **OPTIONS))
    model = sharded(mesh)
    refused(ValueError, "normuon", "'up.weight'")(lambda: Muon(model, normuon=True, **OPTIONS))
    for kind in CHOICES["state_dtype"]:
        if kind not in ("f32", "bf16"):
            refused(ValueError, kind, "'up.weight'")(
                lambda kind=kind: Muon(model, state_dtype=kind, **OPTIONS))
    optimizer = Muon(model, **OPTIONS)
    refused(RuntimeError, "torch.distributed.checkpoint")(lambda: optimizer.save("x"))
    train(model, optimizer, 1)
    model.up.weight.grad._local_tensor.fill_(float("nan") if mesh.get_rank() == 0 else 0.0)
    before = [whole(p).clone() for p in model.parameters()]
    refused(muonium.NonFiniteError, "'up.weight'")(optimizer.step)
    assert all(torch.equal(whole(p), q) for p, q in zip(model.parameters(), before))
    skipping = Muon(model, nonfinite="skip", **OPTIONS)
    skipping.step()
    moved = [name for (name, p), q in zip(model.named_parameters(), before)
             if not torch.equal(whole(p), q)]
    assert "up.weight" not in moved and "down.weight" in moved and "up.bias" in moved
    if mesh.get_rank() == 0:
        model.up.weight.grad = None
    refused(ValueError, "'up.weight'", "none on others")(skipping.step)


def check_only_adam(mesh, path):
    """Without a sharded matrix under Muon, all ranks still take a step, or none."""
    shards = {name: torch.nn.Parameter(distribute_tensor(torch.ones(7, 9), mesh, [Shard(0)]))
              for name in ("embedding.weight", "head.weight")}
    optimizer = Muon(list(shards.items()), **OPTIONS)
    assert {report.optimizer for report in optimizer.report()} == {"adam"}
    for p in shards.values():
        p.grad = distribute_tensor(torch.ones(p.shape), mesh, p.placements)
    shards["head.weight"].grad._local_tensor.fill_(float("nan") if mesh.get_rank() == 0 else 1.0)
    refused(muonium.NonFiniteError, "'head.weight'", "some rank")(optimizer.step)
    assert all(bool((whole(p) == 1).all()) for p in shards.values())
    skipping = Muon(list(shards.items()), nonfinite="skip", **OPTIONS)
    skipping.step()
    assert [bool((whole(p) == 1).all()) for p in shards.values()] == [False, True]


def check_devices(mesh, path):
    """Of a mesh of GPUs with CPUOffloadPolicy: parameters, gradients and state are on the host."""
    model = sharded(mesh)
    optimizer = Muon(model, **OPTIONS)
    train(model, optimizer, 1)
    kind, mesh._device_type = mesh._device_type, "meta"
    assert mesh.device_type == "meta"
    states = optimizer.state
    mesh._device_type = kind
    found = [value for entry in states.values() for value in entry.values()
             if isinstance(value, DTensor)]
    assert len(found) > 10 and all(value._local_tensor.is_cpu for value in found)
    # A group that only has a backend for another device, as init_process_group("nccl") makes it.
    group = dist.new_group(backend="cuda:gloo")
    elsewhere = DeviceMesh.from_group(group, "cuda")
    p = torch.nn.Parameter(DTensor(
        torch.zeros(8 // mesh.size() + 1, 8), DTensorSpec(elsewhere, (Shard(0),), tensor_meta=TensorMeta(
            torch.Size([8 // mesh.size() * mesh.size() + mesh.size(), 8]), (8, 1), torch.float32)),
        requires_grad=False))
    refused(RuntimeError, "'w'", "cpu:gloo,cuda:nccl")(lambda: Muon([("w", p)], **OPTIONS))


def main(checks, rank, ranks, path):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    muonium.set_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}/meeting-{ranks}-{checks[0]}",
                            rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    for check in checks:
        globals()[f"check_{check}"](mesh, f"{path}/checkpoint")
        print("passed", check, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[4].split(","), int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])

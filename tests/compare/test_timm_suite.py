"""What timm's own tests ask of its optimizers, asked of muonium.torch.Muon with recipe="timm": it
reduces the loss, with parameters of any strides and groups with rates of their own; a state dict
goes on exactly; printing and copying work; and timm's schedulers and groups drive it."""
import copy

import pytest
import timm
import timm.optim
import timm.scheduler
import torch

import beside  # noqa: F401, finds the package

from muonium.torch import Muon

pytestmark = pytest.mark.filterwarnings("ignore:the parameters have no names")
torch.set_num_threads(1)

# As timm's registry has them: names, and what they set beyond the defaults.
KINDS = {"muon": {}, "nmuon": {"nesterov": True}}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def contiguous():
    torch.manual_seed(0)
    return torch.nn.Parameter(torch.randn(10, 5)), torch.nn.Parameter(torch.randn(10))


def strided():
    torch.manual_seed(0)
    return (torch.nn.Parameter(torch.randn(10, 5, 2)[..., 0]),
            torch.nn.Parameter(torch.randn(10, 2)[..., 0]))


GROUPS = {
    "list": lambda w, b: ([w, b], {"lr": 1e-3}),
    "rates": lambda w, b: ([{"params": [w]}, {"params": [b], "lr": 3e-3}], {"lr": 1e-3}),
    "one": lambda w, b: ([{"params": b, "lr": 3e-3}], {"lr": 1e-3}),
    "default rate": lambda w, b: ([{"params": b, "lr": 3e-3}], {}),
    "decay": lambda w, b: ([w, b], {"lr": 1e-3, "weight_decay": 1.0}),
    "fallback": lambda w, b: ([{"params": [w]}, {"params": [b], "use_fallback": True}], {"lr": 1e-3}),
}
each_groups = pytest.mark.parametrize("groups", GROUPS.values(), ids=list(GROUPS))


def closure_of(optimizer, weight, bias):
    x = torch.linspace(-1, 1, 5)

    def closure():
        optimizer.zero_grad()
        loss = (weight @ x + bias).square().sum()
        loss.backward()
        return loss
    return closure


@each_kind
@each_groups
@pytest.mark.parametrize("params", [contiguous, strided])
@pytest.mark.parametrize("scheduled", [False, True])
def test_reduces_the_loss(params, groups, kind, scheduled):
    weight, bias = params()
    given, options = groups(weight, bias)
    optimizer = Muon(given, recipe="timm", **options, **kind)
    assert "Muon" in repr(optimizer)
    scheduler = timm.scheduler.CosineLRScheduler(optimizer, 200, warmup_t=10) if scheduled else None
    closure = closure_of(optimizer, weight, bias)
    first = closure().item()
    for i in range(200):
        if scheduler:
            scheduler.step(i)
        optimizer.step(closure)
    assert closure().item() < first


@each_kind
@each_groups
def test_a_state_dict_goes_on_exactly(groups, kind):
    weight, bias = contiguous()
    given, options = groups(weight, bias)
    optimizer = Muon(given, recipe="timm", **options, **kind)
    closure = closure_of(optimizer, weight, bias)
    for _ in range(20):
        optimizer.step(closure)
    saved = copy.deepcopy(optimizer.state_dict())
    twins = copy.deepcopy((weight, bias))
    given, options = groups(*twins)
    resumed = Muon(given, recipe="timm", **options, **kind)
    resumed.load_state_dict(copy.deepcopy(saved))
    again = closure_of(resumed, *twins)
    for _ in range(20):
        optimizer.step(closure)
        resumed.step(again)
        assert torch.equal(weight, twins[0]) and torch.equal(bias, twins[1])
    one, other = optimizer.state_dict(), resumed.state_dict()
    torch.testing.assert_close(one["state"], other["state"], rtol=0, atol=0)
    assert one["param_groups"] == other["param_groups"]
    twin = copy.deepcopy(optimizer)
    assert {k for k in vars(optimizer) if k[0] != "_"} <= {k for k in dir(twin)}


@each_kind
def test_every_step_on_a_model_reduces_the_loss(kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sigmoid(), torch.nn.Linear(3, 1),
                                torch.nn.Sigmoid())
    x = torch.linspace(0.1, 0.6, 6).reshape(3, 2)
    optimizer = Muon(model, recipe="timm", lr=5e-2, **kind)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]


@each_kind
def test_a_valley(kind):
    """Rosenbrock's, with the gradient of one coordinate at a time."""
    p = torch.nn.Parameter(torch.tensor([1.5, 1.5]))
    optimizer = Muon([p], recipe="timm", lr=1e-3, **kind)
    first = (p.detach() - 1).norm()
    for i in range(2000):
        optimizer.zero_grad()
        x, y = p
        ((1 - x) ** 2 + 100 * (y - x**2) ** 2).backward()
        p.grad[i % 2] = 0
        optimizer.step()
    assert (p.detach() - 1).norm() <= first


def test_groups_and_schedulers_of_timm():
    """timm's groups without decay for biases and norms, with layer-wise rates; its scheduler
    scales them, and both optimizers see the same rates."""
    model = timm.create_model("vit_tiny_patch16_224", depth=2)
    groups = timm.optim.param_groups_layer_decay(model, weight_decay=0.05, layer_decay=0.75)
    ours, theirs = (make(copy.deepcopy(groups)) for make in (
        lambda g: Muon(g, recipe="timm", lr=0.02), lambda g: timm.optim.Muon(g, lr=0.02)))
    for optimizer in (ours, theirs):
        timm.scheduler.CosineLRScheduler(optimizer, 10, warmup_t=2, warmup_lr_init=1e-4).step(5)
    assert [(g["lr"], g["weight_decay"]) for g in ours.param_groups] == [
        (g["lr"], g["weight_decay"]) for g in theirs.param_groups]
    assert len({g["lr"] for g in ours.param_groups}) > 2

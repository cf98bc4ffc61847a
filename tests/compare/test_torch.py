"""torch.optim.Muon beside recipe="torch"."""
import pytest
import torch

from beside import BF16, MATRICES, assert_beside, gradients, half_bits, start, train_torch

import muonium
from muonium.torch import Muon

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:the parameters have no names")


class InF32:
    """torch, but that its bfloat16 is float32."""

    bfloat16 = torch.float32

    def __getattr__(self, name):
        return getattr(torch, name)


def compare(tolerance=(), named=True, dtype="float32", precision=None, **options):
    weights, grads = start(MATRICES), gradients(MATRICES)
    expected = train_torch(weights, grads, lambda params: torch.optim.Muon(
        params.values(), **options), dtype)
    found = train_torch(weights, grads, lambda params: Muon(
        params.items() if named else params.values(), precision=precision, **options), dtype)
    assert_beside(found, expected, weights, *tolerance)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("options", [
    {}, {"lr": 0.02, "weight_decay": 0.0}, {"nesterov": False, "momentum": 0.8},
    {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}, {"momentum": 0.0},
    {"ns_coefficients": (3.4, -4.7, 2.0), "ns_steps": 6}, {"eps": 1.0}, {"eps": 0.0},
    {"weight_decay": 0.5, "lr": 0.05}, {"adjust_lr_fn": None},
    {"adjust_lr_fn": "original"}, {"adjust_lr_fn": "match_rms_adamw"},
    {"adjust_lr_fn": "spectral_unclamped"}, {"lr": torch.tensor(0.01)}], ids=str)
def test_options(monkeypatch, options, named):
    monkeypatch.setattr(torch.optim._muon, "torch", InF32())
    compare(named=named, precision="f32", **options)


@pytest.mark.parametrize("options", [{}, {"nesterov": False}, {"lr": 0.02, "weight_decay": 0.0},
                                     {"ns_steps": 8}], ids=str)
def test_in_bf16(options):
    """As torch computes, with its own roundings."""
    compare([BF16], **options)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_parameters(monkeypatch, dtype, nesterov):
    """Without decay: torch rounds the parameters after that, too."""
    monkeypatch.setattr(torch.optim._muon, "torch", InF32())
    compare(half_bits(dtype), dtype=dtype, precision="f32", nesterov=nesterov, weight_decay=0.0,
            lr=0.02)


def test_maximize():
    """Gradients turned round, as every optimizer of torch that has it does: AdamW too."""
    shapes = {**MATRICES, "vector": (33,)}
    weights, grads = start(shapes), gradients(shapes)
    turned = [{name: -g for name, g in step.items()} for step in grads]
    expected = train_torch(weights, turned, lambda named: Muon(named.items()))
    found = train_torch(weights, grads, lambda named: Muon(named.items(), maximize=True))
    assert_beside(found, expected, weights, 0)


@pytest.mark.parametrize("options", [{}, {"maximize": True}, {"betas": (0.8, 0.99)},
                                     {"weight_decay": 0.3}], ids=str)
def test_adamw(options):
    """What is no matrix gets torch.optim.AdamW."""
    shapes = {"vector": (33,), "scalar": (), "cube": (3, 4, 5)}
    weights, grads = start(shapes), gradients(shapes)
    expected = train_torch(weights, grads, lambda named: torch.optim.AdamW(
        named.values(), **{"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1, **options}))
    found = train_torch(weights, grads, lambda named: Muon(named.items(), **options))
    assert_beside(found, expected, weights)


NOTHING = {"fused": [None, True, False], "amsgrad": [False], "foreach": [None, True, False],
           "capturable": [False, True], "differentiable": [False]}


@pytest.mark.parametrize("name, value", [(n, v) for n, values in NOTHING.items() for v in values])
def test_flags_that_change_nothing(name, value):
    weights, grads = start(MATRICES), gradients(MATRICES, 3)
    expected = train_torch(weights, grads, lambda named: Muon(named.items()))
    found = train_torch(weights, grads, lambda named: Muon(named.items(), **{name: value}))
    assert_beside(found, expected, weights, 0)


def test_flags_that_would_change_something():
    p = torch.nn.Parameter(torch.zeros(8, 8))
    for name in ("amsgrad", "differentiable"):
        with pytest.raises(ValueError, match=name):
            Muon([("w", p)], **{name: True})


def test_routes():
    """Muon for what torch.optim.Muon takes, whatever its name and however thin."""
    shapes = {"lm_head.weight": (50, 8), "wte.weight": (9, 4), "a": (1, 1), "b": (1, 700),
              "norm.weight": (3, 2), "bias": (8,), "conv.weight": (8, 8, 3), "scale": (), "empty": (0, 4)}
    for report in muonium.route(shapes, recipe="torch"):
        p = torch.nn.Parameter(torch.zeros(shapes[report.name]))
        try:
            torch.optim.Muon([p])
            taken = p.numel() > 0
        except ValueError:
            taken = False
        assert (report.optimizer == "muon") == taken, report

"""torch.optim.Muon beside recipe="torch"."""
import pytest

from beside import MATRICES, assert_beside, gradients, start, train_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not hasattr(torch.optim, "Muon"):
    pytest.skip("this PyTorch has no Muon", allow_module_level=True)

from muonium.torch import Muon  # noqa: E402

torch.set_num_threads(1)


class InF32:
    """torch, but that its bfloat16 is float32."""

    bfloat16 = torch.float32

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.mark.parametrize("options", [
    {}, {"lr": 0.02, "weight_decay": 0.0}, {"nesterov": False, "momentum": 0.8},
    {"ns_coefficients": (3.4, -4.7, 2.0), "ns_steps": 6}, {"eps": 1.0},
    {"adjust_lr_fn": "original"}, {"adjust_lr_fn": "match_rms_adamw"},
    {"adjust_lr_fn": "spectral_unclamped"}, {"lr": torch.tensor(0.01)}])
def test_options(monkeypatch, options):
    monkeypatch.setattr(torch.optim._muon, "torch", InF32())
    weights, grads = start(MATRICES), gradients(MATRICES)
    expected = train_torch(weights, grads,
                           lambda named: torch.optim.Muon(named.values(), **options))
    found = train_torch(weights, grads,
                        lambda named: Muon(named.items(), precision="f32", **options))
    assert_beside(found, expected, weights)


def test_maximize():
    """Gradients turned round, as every optimizer of torch that has it does: AdamW too."""
    shapes = {**MATRICES, "vector": (33,)}
    weights, grads = start(shapes), gradients(shapes)
    turned = [{name: -g for name, g in step.items()} for step in grads]
    expected = train_torch(weights, turned, lambda named: Muon(named.items()))
    found = train_torch(weights, grads, lambda named: Muon(named.items(), maximize=True))
    assert_beside(found, expected, weights, 0)


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

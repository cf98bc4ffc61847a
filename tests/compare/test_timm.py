"""timm.optim.Muon beside recipe="timm"."""
import logging

import pytest

from beside import MATRICES, OTHERS, assert_beside, gradients, start, train_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
theirs = pytest.importorskip("timm.optim.muon", reason="timm is not installed")

from muonium.torch import Muon  # noqa: E402

torch.set_num_threads(1)

SHAPES = {**MATRICES, **OTHERS, "conv": (12, 6, 3, 3), "depthwise": (12, 1, 3, 3),
          "position": (1, 20, 16), "narrow": (3, 40), "long": (4, 600), "experts": (5, 8, 8)}


@pytest.fixture
def in_f32(monkeypatch):
    """timm iterates in bf16 unless told otherwise, and nobody tells it."""
    function = theirs.zeropower_via_newtonschulz
    defaults = tuple(torch.float32 if d is torch.bfloat16 else d for d in function.__defaults__)
    monkeypatch.setattr(function, "__defaults__", defaults)


def compare(groups=lambda named: named, ours=(), **options):
    weights, grads = start(SHAPES), gradients(SHAPES)

    def tensors(named):
        """Groups as timm takes them, without names."""
        listed = groups(list(named.items()))
        if isinstance(listed[0], dict):
            return [{**group, "params": [p for _, p in group["params"]]} for group in listed]
        return [p for _, p in listed]

    expected = train_torch(weights, grads, lambda named: theirs.Muon(tensors(named), **options))
    found = train_torch(weights, grads, lambda named: Muon(
        tensors(named), recipe="timm", precision="f32", **{**options, **dict(ours)}))
    assert_beside(found, expected, weights)


@pytest.mark.parametrize("options", [
    {}, {"nesterov": True}, {"weight_decay": 0.1}, {"momentum": 0.8, "lr": 0.05},
    {"adjust_lr_fn": None}, {"adjust_lr_fn": "original"}, {"adjust_lr_fn": "rms_to_rms"},
    {"conv_mode": "batched"}, {"conv_mode": "batched", "normalize_spatial": False},
    {"ns_coefficients": "original", "ns_steps": 7}, {"ns_coefficients": "polar_express"},
    {"ns_coefficients": (2.0, -1.5, 0.5)}, {"safety_factor": 1.01}, {"eps": 1.0},
    {"betas": (0.8, 0.99), "nesterov": True}, {"fallback_lr_scale": 0.25}, {"verbose": True}])
def test_options(in_f32, options):
    compare(**options)


@pytest.mark.parametrize("nesterov", [False, True])
def test_fallback_groups(in_f32, nesterov):
    def groups(named):
        return [{"params": named[:2]}, {"params": named[2:4], "use_fallback": True, "lr": 3e-3,
                                        "weight_decay": 0.2, "betas": (0.7, 0.9), "eps": 1e-2},
                {"params": named[4:6], "use_muon": False}, {"params": named[6:], "lr": 1e-2}]

    compare(groups, nesterov=nesterov, weight_decay=0.05, fallback_lr_scale=0.5)


def test_names_of_the_log(in_f32, caplog):
    """With verbose=True the routing is logged once, with the counts and reasons of timm."""
    with caplog.at_level(logging.INFO):
        compare(verbose=True)
    lines = {r.name: [x.getMessage() for x in caplog.records if x.name == r.name]
             for r in caplog.records}
    original = next(v for k, v in lines.items() if k.startswith("timm"))
    own = lines["muonium.torch"]
    counts = original[0].split(": ")[1]
    assert own[0].endswith(counts)
    reasons = {x.split(":")[0].split(" -> ")[0].strip() for x in original if " -> " in x}
    for reason in reasons:
        assert any(reason in line for line in own[1:]), reason


def test_a_bad_conv_mode_is_refused():
    p = torch.nn.Parameter(torch.zeros(8, 8))
    for make in (theirs.Muon, lambda params, **o: Muon(params, recipe="timm", **o)):
        with pytest.raises(ValueError, match="conv_mode"):
            make([p], conv_mode="sideways")

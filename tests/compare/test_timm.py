"""timm.optim.muon.Muon beside recipe="timm"."""
import logging
import warnings

import pytest
import timm
import timm.optim.muon as theirs
import torch

from beside import (BF16, MATRICES, OTHERS, assert_beside, gradients, half_bits, start,
                    train_torch)

import muonium
from muonium.torch import Muon

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:the parameters have no names")

SHAPES = {**MATRICES, **OTHERS, "conv": (12, 6, 3, 3), "depthwise": (12, 1, 3, 3),
          "position": (1, 20, 16), "narrow": (3, 40), "long": (4, 600), "experts": (5, 8, 8),
          "volume": (6, 4, 2, 3, 2)}


@pytest.fixture
def in_f32(monkeypatch):
    """timm iterates in bf16 unless told otherwise, and nobody tells it."""
    function = theirs.zeropower_via_newtonschulz
    defaults = tuple(torch.float32 if d is torch.bfloat16 else d for d in function.__defaults__)
    monkeypatch.setattr(function, "__defaults__", defaults)


def compare(groups=lambda named: named, named=False, precision="f32", dtype="float32",
            shapes=SHAPES, **options):
    weights, grads = start(shapes), gradients(shapes)

    def tensors(params, with_names=False):
        """Groups as timm takes them, without names."""
        listed = groups(list(params.items()))
        if with_names:
            return listed
        if isinstance(listed[0], dict):
            return [{**group, "params": [p for _, p in group["params"]]} for group in listed]
        return [p for _, p in listed]

    expected = train_torch(weights, grads, lambda p: theirs.Muon(tensors(p), **options),
                           dtype)
    found = train_torch(weights, grads, lambda p: Muon(
        tensors(p, named), recipe="timm", precision=precision, **options), dtype)
    return found, expected, weights


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("options", [
    {}, {"nesterov": True}, {"weight_decay": 0.1}, {"momentum": 0.8, "lr": 0.05},
    {"weight_decay": 0.1, "nesterov": True, "lr": 0.05},
    {"adjust_lr_fn": None}, {"adjust_lr_fn": "original"}, {"adjust_lr_fn": "rms_to_rms"},
    {"conv_mode": "batched"}, {"conv_mode": "batched", "normalize_spatial": False},
    {"conv_mode": "batched", "adjust_lr_fn": "original", "nesterov": True},
    {"ns_coefficients": "original", "ns_steps": 7}, {"ns_coefficients": "polar_express"},
    {"ns_coefficients": "polar_express_safer", "ns_steps": 8}, {"ns_steps": 3},
    {"ns_coefficients": (2.0, -1.5, 0.5)},
    {"ns_coefficients": [(4.0848, -6.8946, 2.927), (3.9505, -6.3029, 2.6377)],
     "ns_steps": 4},
    {"safety_factor": 1.01}, {"eps": 1.0}, {"eps": 1e-2, "nesterov": True}, {"momentum": 0.0},
    {"betas": (0.8, 0.99), "nesterov": True}, {"betas": (0.8, 0.99)},
    {"fallback_lr_scale": 0.25}, {"verbose": True}, {"algo": "muon"}, {"scale_eps": False},
    {"capturable": False}], ids=str)
def test_options(in_f32, options, named):
    assert_beside(*compare(named=named, **options))


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("conv", [{}, {"conv_mode": "batched"},
                                  {"conv_mode": "batched", "normalize_spatial": False}], ids=str)
@pytest.mark.parametrize("scale", [{}, {"adjust_lr_fn": None}, {"adjust_lr_fn": "rms_to_rms"},
                                   {"adjust_lr_fn": "rsqrt_in"}], ids=str)
def test_adamuon(in_f32, scale, conv, nesterov):
    assert_beside(*compare(algo="adamuon", nesterov=nesterov, **scale, **conv))


@pytest.mark.parametrize("options", [{"betas": (0.8, 0.99)}, {"weight_decay": 0.1, "momentum": 0.8},
                                     {"eps": 1e-2}, {"ns_coefficients": "polar_express"}], ids=str)
def test_options_of_adamuon(in_f32, options):
    assert_beside(*compare(algo="adamuon", **options))


def test_betas_of_the_recipe_adamuon():
    """They are those of AdaMuon too, unless adamuon_beta2 says otherwise."""
    weights, grads = start(MATRICES), gradients(MATRICES)

    def run(**options):
        return train_torch(weights, grads, lambda params: Muon(
            params.items(), recipe="adamuon", **options))

    def same(ours, theirs):
        return all((ours[name] == theirs[name]).all() for name in ours)

    assert same(run(betas=(0.8, 0.9)), run(adamuon_beta2=0.9))
    assert same(run(betas=(0.8, 0.9), adamuon_beta2=0.95), run())
    assert not same(run(betas=(0.8, 0.9)), run())


def test_scale_eps_is_refused():
    with pytest.raises(ValueError, match="scale_eps is True.*shape of each matrix"):
        Muon([torch.nn.Parameter(torch.zeros(8, 8))], recipe="timm", scale_eps=True)


def test_adamw_lr(in_f32):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # timm calls it deprecated
        assert_beside(*compare(adamw_lr=5e-3))


@pytest.mark.parametrize("options", [{}, {"nesterov": True, "conv_mode": "batched"},
                                     {"ns_coefficients": "polar_express", "safety_factor": 1.01}],
                         ids=str)
def test_in_bf16(options):
    """As timm computes, with its own roundings."""
    assert_beside(*compare(precision=None, **options), BF16)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_parameters(in_f32, dtype, nesterov):
    """Without decay: timm rounds the parameters after that, too. And without AdamW: squares of
    gradients vanish in float16, in which timm keeps their means."""
    assert_beside(*compare(dtype=dtype, nesterov=nesterov, shapes={**MATRICES, "conv": SHAPES["conv"]}),
                  *half_bits(dtype))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("nesterov", [False, True])
def test_fallback_groups(in_f32, nesterov, named):
    def groups(listed):
        return [{"params": listed[:2]}, {"params": listed[2:4], "use_fallback": True, "lr": 3e-3,
                                         "weight_decay": 0.2, "betas": (0.7, 0.9), "eps": 1e-2},
                {"params": listed[4:6], "use_muon": False}, {"params": listed[6:], "lr": 1e-2}]

    assert_beside(*compare(groups, named, nesterov=nesterov, weight_decay=0.05,
                           fallback_lr_scale=0.5))


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


@pytest.mark.parametrize("algo", ["muon", "adamuon"])
def test_a_state_dict_of_timm_goes_on(in_f32, algo):
    weights, grads = start(SHAPES), gradients(SHAPES)
    options = {"nesterov": True, "weight_decay": 0.1, "fallback_lr_scale": 0.5, "algo": algo}

    def handing_over(params):
        original = theirs.Muon(params.values(), **options)
        other = Muon(params.items(), recipe="timm", precision="f32", **options)
        steps = iter(range(len(grads)))

        class Both:
            def step(self):
                at = next(steps)
                if at == 20:
                    other.load_state_dict(original.state_dict())
                (original if at < 20 else other).step()
        return Both()

    expected = train_torch(weights, grads, lambda p: theirs.Muon(p.values(), **options))
    assert_beside(train_torch(weights, grads, handing_over), expected, weights)


@pytest.mark.parametrize("family", [
    "vit_tiny_patch16_224", "convnext_atto", "resnet18", "resnet50", "mobilenetv3_small_050",
    "efficientnet_b0", "swin_tiny_patch4_window7_224", "deit_tiny_distilled_patch16_224",
    "mixer_s32_224", "eva02_tiny_patch14_224", "regnetx_002", "levit_128s", "mobilevit_xxs"])
def test_routes_of_models(family):
    """Names and all: timm looks at shapes alone."""
    with torch.device("meta"):
        shapes = {n: p.shape for n, p in timm.create_model(family).named_parameters()}
    for report in muonium.route({n: tuple(s) for n, s in shapes.items()}, recipe="timm"):
        muon, reason = theirs._is_suitable_for_muon(
            torch.empty(shapes[report.name], device="meta"), return_reason=True)
        assert (report.optimizer == "muon", report.reason) == (muon, reason), report.name

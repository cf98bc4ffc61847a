"""muonium.torch.Muon as a stand-in for the implementations that its recipes name: groups, flags,
keywords, state dicts and messages. tests/compare has the implementations themselves.

The library is that of MUONIUM_BUILD_DIR, by default build/ of the source tree.
"""
import copy
import logging
import warnings

import pytest

import torch_isa

torch_isa.prepare()
torch = pytest.importorskip("torch")

import package  # noqa: F401, finds the library

import muonium  # noqa: E402
from muonium.torch import Muon  # noqa: E402


def parameter(*shape):
    return torch.nn.Parameter(torch.randn(shape))


# ---- groups ----


@pytest.mark.parametrize("recipe", muonium.recipes())
@pytest.mark.parametrize("flag", [{"use_muon": False}, {"use_fallback": True}, {"route": "adam"}])
def test_options_of_a_fallback_group_are_those_of_adamw(recipe, flag):
    """lr, weight_decay, betas and eps, against AdamW in double; without them the recipe's own."""
    torch.manual_seed(1)
    given = {"lr": 0.05, "weight_decay": 0.3, "betas": (0.7, 0.9), "eps": 0.5}
    p, other = parameter(8, 6), parameter(8, 6)
    optimizer = Muon([{"params": [("w", p)], **flag, **given}, {"params": [("v", other)], **flag}],
                     recipe=recipe, nesterov=False, lr=0.01, adam="adamw")
    w, m, v = p.detach().double(), 0.0, 0.0
    for t in range(1, 6):
        if t == 4:  # and they are followed
            given["lr"] = optimizer.param_groups[0]["lr"] = 0.02
            given["eps"] = optimizer.param_groups[0]["eps"] = 0.1
        p.grad = torch.randn(8, 6)
        g = p.grad.double()
        (b1, b2), lr = given["betas"], given["lr"]
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        step = m / (1 - b1**t) / ((v / (1 - b2**t)).sqrt() + given["eps"])
        w = (1 - lr * given["weight_decay"]) * w - lr * step
        optimizer.step()
    assert (p - w).abs().max() < 1e-5
    own = 3e-4 if recipe == "keller" else 0.01
    assert optimizer.report()[1].lr == pytest.approx(own)


def test_a_fallback_group_may_still_have_options_of_adamw_by_name():
    p = parameter(8, 6)
    optimizer = Muon([{"params": [("w", p)], "use_muon": False, "lr": 0.05, "adam_lr": 0.01}],
                     recipe="keller")
    assert optimizer.report()[0].lr == pytest.approx(0.01)


# ---- keywords ----


def test_adjust_lr_fn():
    p = [("w", parameter(8, 32))]

    def step_rms(**options):
        return Muon(p, lr=1.0, **options).report()[0].step_rms * 32**0.5

    assert step_rms(adjust_lr_fn="spectral_unclamped") == pytest.approx(0.5)
    assert step_rms(adjust_lr_fn=None) == pytest.approx(1)
    assert step_rms(recipe="timm") == pytest.approx(0.2 * 32**0.5)
    assert step_rms(recipe="timm", adjust_lr_fn=None) == pytest.approx(1)
    with pytest.raises(ValueError, match="function no is not supported"):
        step_rms(adjust_lr_fn="no")
    optimizer = Muon(p, recipe="timm")
    state = Muon(p, recipe="timm", adjust_lr_fn=None, lr=1.0).state_dict()
    optimizer.load_state_dict(state)
    assert optimizer.report()[0].step_rms * 32**0.5 == pytest.approx(1)


def test_conv_mode_is_checked_without_convolutions():
    for value in ("sideways", "spatial"):
        with pytest.raises(ValueError, match="conv_mode.*flatten, batched"):
            Muon([("w", parameter(8, 8))], recipe="timm", conv_mode=value)


def test_verbose_logs_once(caplog):
    p, b = parameter(8, 8), parameter(8)
    p.grad, b.grad = torch.randn(8, 8), torch.randn(8)
    optimizer = Muon([("w\n", p), ("b", b)], verbose=True)
    with caplog.at_level(logging.INFO, "muonium.torch"):
        optimizer.step()
        optimizer.step()
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["Muon parameter routing: 1 Muon, 1 AdamW",
                     "  insufficient_dims -> AdamW: 1, 'b'", "  ok -> Muon: 1, 'w\\n'"]
    caplog.clear()
    with caplog.at_level(logging.INFO, "muonium.torch"):
        Muon([("w", p)]).step()
    assert not caplog.records


def test_keywords_of_the_wrapper():
    p = [("w", parameter(8, 8)), ("b", parameter(8))]
    optimizer = Muon(p, ns_mode="fp16", ns_iters=7, grouped_ns=True, adam_lr_scale=0.5)
    group = optimizer.param_groups[0]
    assert group["recipe"] == "fp16" and optimizer.report()[1].lr == pytest.approx(1.5e-4)
    assert Muon(p, ns_mode="fp32").param_groups[0]["recipe"] == "fp32"
    with pytest.raises(ValueError, match="ns_mode is 'fp8'"):
        Muon(p, ns_mode="fp8")
    with pytest.raises(ValueError, match="ns_mode is 'fp16' and recipe 'torch'"):
        Muon(p, ns_mode="fp16", recipe="torch")


def test_axis_0_is_an_axis():
    import numpy

    weights = {"w": numpy.zeros((6, 3, 8), "f4")}
    optimizer = muonium.Optimizer(weights, each={"w": dict(layout="fan", in_axes=0, out_axes=2)})
    report = optimizer.report()[0]
    assert (report.matrices, report.rows, report.cols) == (3, 8, 6)


def test_kernels_of_jax_are_in_out_and_those_of_torch_are_not():
    import numpy

    report = muonium.Optimizer({"w": numpy.zeros((6, 8), "f4")}, recipe="optax", lr=1).report()[0]
    assert (report.rows, report.cols) == (8, 6)
    report = Muon([("w", parameter(6, 8))], recipe="optax", lr=1).report()[0]
    assert (report.rows, report.cols) == (6, 8)


def test_divisors_of_optax():
    """One iteration of p(x) = x shows the divisor: squares are held to 1e-8, whatever eps is."""
    import numpy

    x = numpy.random.default_rng(1).standard_normal((4, 6)).astype("f4") * 1e-7

    def divided(norm):
        return muonium.orthogonalize(x, steps=1, coefficients=(1, 0, 0), normalize=norm, eps=0.5,
                                     eps_mode="optax")

    for norm in ("aol", "schatten"):
        assert numpy.allclose(divided(norm), x / 1e-4, rtol=1e-5, atol=0)
    assert numpy.allclose(divided("frobenius"), x / 0.5, rtol=1e-5, atol=0)


def test_weight_decay_mask():
    import numpy

    weights = {name: numpy.ones((8, 6), "f4") for name in ("on", "off", "bias")}
    optimizer = muonium.Optimizer(weights, lr=0.5, weight_decay=0.1,
                                  weight_decay_mask={"on": True, "off": False, "bias": False})
    grads = {name: numpy.zeros((8, 6), "f4") for name in weights}
    optimizer.step(grads)
    optimizer.weight_decay = 0.2
    optimizer.step(grads)
    kept = {name: w[0, 0] for name, w in weights.items()}
    assert kept["on"] == pytest.approx(0.95 * 0.9) and kept["off"] == 1
    assert kept["bias"] == pytest.approx(0.95 * 0.95)  # AdamW's is no matter of the mask


# ---- state of the wrapper ----


def stepped(named, **options):
    optimizer = Muon(named, **options)
    for _ in range(3):
        for _, p in named:
            p.grad = torch.randn(p.shape)
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("form", ["mu_buffers", "mu_state list", "mu_state", "mu_state of dicts"])
def test_state_dicts_of_the_wrapper(form):
    torch.manual_seed(2)
    named = [("a", parameter(8, 6)), ("b", parameter(8)), ("c", parameter(12, 9)),
             ("d", parameter(3))]
    optimizer = stepped(named, ns_mode="fp32", lr=5e-3)
    state = {p: copy.deepcopy(dict(entry)) for p, entry in optimizer.state.items()}
    buffers = [state[p]["momentum_buffer"] for _, p in named if p.ndim == 2]
    moments = {i: state[p] for i, (_, p) in enumerate((n, p) for n, p in named if p.ndim == 1)}
    theirs = {"lr": 5e-3, "ns_mode": "fp32", "adam": {"state": moments, "param_groups": []}}
    theirs.update({"mu_buffers": {"mu_buffers": buffers}, "mu_state list": {"mu_state": buffers},
                   "mu_state": {"mu_state": dict(enumerate(buffers))},
                   "mu_state of dicts": {"mu_state": {i: {"mu": b} for i, b in enumerate(buffers)}},
                   }[form])
    twins = copy.deepcopy(named)
    resumed = Muon(twins, ns_mode="fp32")
    resumed.load_state_dict(theirs)
    for (_, p), (_, q) in zip(named, twins):
        p.grad = torch.randn(p.shape)
        q.grad = p.grad.clone()
    optimizer.step()
    resumed.step()
    for (_, p), (_, q) in zip(named, twins):
        assert torch.equal(p, q)


def test_state_dicts_of_the_wrapper_that_do_not_fit():
    named = [("a", parameter(8, 6)), ("b", parameter(8))]
    optimizer = Muon(named, ns_mode="fp32")
    good = {"mu_buffers": [torch.zeros(8, 6)], "adam": None, "lr": 1e-3, "ns_mode": "fp32"}
    for change, part in [({"mu_buffers": []}, "0 buffers"), ({"ns_mode": "fp16"}, "ns_mode 'fp16'"),
                         ({"mu_buffers": [torch.zeros(6, 8)]}, "momentum_buffer of 'a'"),
                         ({"adam": {"state": {1: {}}}}, "parameter 1")]:
        with pytest.raises(ValueError, match=part):
            optimizer.load_state_dict({**good, **change})
    optimizer.load_state_dict(good)
    assert optimizer.param_groups[0]["lr"] == 1e-3


# ---- names ----


def test_a_module_has_names():
    model = torch.nn.Sequential(torch.nn.Embedding(9, 8), torch.nn.Linear(8, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reports = Muon(model).report()
        Muon([{"params": list(model.parameters())[:2], "use_muon": True}])
        Muon([model[1].bias])
    assert [r.name for r in reports] == [name for name, _ in model.named_parameters()]


def test_missing_names_are_told_once():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    with pytest.warns(UserWarning, match=r"no names.*named_parameters\(\)") as caught:
        Muon(model.parameters())
    assert len(caught) == 1 and caught[0].filename == __file__


def test_names_in_messages_cannot_forge_lines():
    name = "a\nb\x1b[31m"
    with pytest.raises(TypeError) as error:
        Muon([(name, torch.nn.Parameter(torch.zeros(3).double()))])
    assert repr(name) in str(error.value) and "\n" not in str(error.value)
    p = parameter(8, 8)
    optimizer = Muon([(name, p)])
    p.grad = torch.randn(8, 8).to_sparse()
    with pytest.raises(TypeError) as error:
        optimizer.step()
    assert repr(name) in str(error.value) and "\x1b" not in str(error.value)

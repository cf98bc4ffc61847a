"""torch.ops.muonium.orthogonalize under everything that PyTorch does with an operator, and in the
places where other Muons take one.
"""
import importlib
import shutil

import pytest
import torch

import beside  # noqa: F401, finds the package

import muonium
import muonium.torch

torch.set_num_threads(1)
OPERATOR = torch.ops.muonium.orthogonalize


def batch(dtype=torch.float32):
    return torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(1)).to(dtype)


def test_it_is_that_of_the_library():
    x = batch()
    for options in ({}, {"steps": 8}, {"coefficients": "original", "form": "standard"},
                    {"precision": "bf16", "form": "standard"}, {"eps": 1e-3, "eps_mode": "add"}):
        expected = torch.from_numpy(muonium.orthogonalize(x.numpy(), **options))
        assert torch.equal(OPERATOR(x, **options), expected)
    strided = x.transpose(-1, -2)
    assert torch.equal(OPERATOR(strided), torch.from_numpy(muonium.orthogonalize(strided.numpy())))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_types(dtype):
    found = OPERATOR(batch(dtype), 8)
    assert found.dtype == dtype
    unit = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}.get(dtype, 1e-6)
    gram = found.double().mT @ found.double()
    # 8 products of elements below 1, each rounded by `unit`, twice in a product.
    assert (gram - torch.eye(5)).abs().max() <= 2 * 8 * unit


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (2, 0, 5), (0, 4, 5), (3, 0, 0)])
def test_empty_matrices(shape):
    assert OPERATOR(torch.zeros(shape)).shape == shape


def test_pytorch_accepts_it():
    for arguments in ((batch(),), (batch().mT, 8), (batch(torch.bfloat16),)):
        torch.library.opcheck(OPERATOR.default, arguments)


def test_compile_keeps_one_graph():
    x = batch()
    compiled = torch.compile(lambda g: 0.2 * OPERATOR(g + 1, steps=8), fullgraph=True,
                             backend="aot_eager")
    assert torch.equal(compiled(x), 0.2 * OPERATOR(x + 1, steps=8))


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor():
    x = batch()
    compiled = torch.compile(lambda g: 0.5 * OPERATOR(2 * g, steps=8), fullgraph=True)
    assert torch.equal(compiled(x), 0.5 * OPERATOR(2 * x, steps=8))


def test_export():
    class Model(torch.nn.Module):
        def forward(self, x):
            return OPERATOR(x)

    exported = torch.export.export(Model(), (batch(),), dynamic_shapes=({0: torch.export.Dim("n")},))
    assert torch.equal(exported.module()(torch.cat([batch()] * 2)), OPERATOR(torch.cat([batch()] * 2)))


def test_vmap():
    x = batch()
    assert torch.equal(torch.vmap(OPERATOR)(x), OPERATOR(x))
    last = x.movedim(0, -1)  # the mapped dimension is not the first
    assert torch.equal(torch.vmap(OPERATOR, in_dims=2)(last), OPERATOR(x))
    twice = torch.stack([x, 2 * x, -x], 1)
    assert torch.equal(torch.vmap(torch.vmap(OPERATOR), in_dims=1)(twice),
                       OPERATOR(twice.transpose(0, 1)))


def test_errors():
    with pytest.raises(TypeError, match="x is torch.int64"):
        OPERATOR(torch.ones(3, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="x has shape .3,."):
        OPERATOR(torch.ones(3))
    with pytest.raises(ValueError, match="eps is 0.1 without an eps_mode"):
        OPERATOR(batch(), eps=0.1)
    with pytest.raises(muonium.NonFiniteError):
        OPERATOR(batch() * float("nan"))
    with pytest.raises(RuntimeError, match="no autograd formula"):
        OPERATOR(batch().requires_grad_()).sum().backward()


# ---- the places of others ----


def test_in_the_place_of_dion():
    """Dion's Muon calls newton_schulz_func(X, epsilon=tensor) inside a compiled function. It is not
    on PyPI."""
    def update(function, x, epsilon):
        return 0.2 * function(x, epsilon=epsilon).reshape(x.shape)

    compiled = torch.compile(update, fullgraph=True, backend="aot_eager")
    found = compiled(muonium.torch.newton_schulz, batch(torch.bfloat16), torch.tensor(1e-8))
    assert torch.equal(found, 0.2 * OPERATOR(batch(torch.bfloat16)))


def test_in_the_place_of_deepspeed(monkeypatch):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    original = importlib.import_module("deepspeed.runtime.zero.muon.original_muon")
    x, momentum = batch()[0], torch.zeros(8, 5)
    theirs = original.muon_update(x.clone(), momentum.clone(), ns_method="standard")
    asked = []

    def ours(matrix, steps):
        asked.append(steps)
        return muonium.torch.newton_schulz(matrix, steps, coefficients="original", precision="bf16",
                                           form="standard")

    monkeypatch.setattr(original, "zeropower_via_newtonschulz5", ours)
    found = original.muon_update(x.clone(), momentum.clone(), ns_method="standard")
    assert asked == [5]
    # Both round each of five iterations to bf16, in other orders of summation.
    assert (found - theirs).norm() <= beside.BF16 * 5 * theirs.norm()
    assert found.norm() > 1

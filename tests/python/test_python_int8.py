"""muonium.torch.Muon with int8 state (the library is found as package.py says, by
MUONIUM_BUILD_DIR)."""
import copy

import pytest

import torch_isa

torch_isa.prepare()
torch = pytest.importorskip("torch")

from test_python_torch import (Muon, assert_same_bits, new_model,  # noqa: E402
                               through_file, train)

INT8 = dict(state_dtype="int8", adam_state_dtype="int8")


@pytest.mark.parametrize("random", [False, True])
def test_resuming_int8_state_is_bit_exact(random):
    model, other = new_model(), new_model()
    optimizer = Muon(model.named_parameters(), state_stochastic=random, **INT8)
    train(model, optimizer, 4)
    other.load_state_dict(model.state_dict())
    saved = through_file(optimizer.state_dict())
    kinds = {(key, value.dtype) for entry in saved["state"].values()
             for key, value in entry.items() if key != "step"}
    assert kinds == {("momentum_buffer", torch.int8), ("momentum_scale", torch.float32),
                     ("exp_avg", torch.int8), ("exp_avg_scale", torch.float32),
                     ("exp_avg_sq", torch.float32)}
    train(model, optimizer, 4, 4)
    resumed = Muon(other.named_parameters(), state_stochastic=random, **INT8)
    resumed.load_state_dict(saved)
    train(other, resumed, 4, 4)
    assert_same_bits(other, model)


def test_int8_state_becomes_f32_and_back():
    """Of the state alone: the options are those of the optimizer that loads."""
    model = new_model()
    wide, narrow = Muon(model.named_parameters()), Muon(model.named_parameters(), **INT8)
    train(model, wide, 3)
    f32 = copy.deepcopy(wide.state_dict())
    narrow.load_state_dict({**narrow.state_dict(), "state": f32["state"]})
    int8 = copy.deepcopy(narrow.state_dict())
    wide.load_state_dict({**wide.state_dict(), "state": int8["state"]})
    for index, exact in f32["state"].items():
        for key, scale in (("momentum_buffer", "momentum_scale"), ("exp_avg", "exp_avg_scale")):
            if key in exact:
                found, entry = wide.state_dict()["state"][index][key], int8["state"][index]
                each = entry[scale].repeat_interleave(2048)[:found.numel()].reshape(found.shape)
                assert torch.equal(found, entry[key].float() * each)
                assert bool(((found - exact[key]).abs() <= 0.5001 * each).all())
    del int8["state"][0][next(key for key in int8["state"][0] if key.endswith("_scale"))]
    with pytest.raises(ValueError, match="is int8: it needs .*_scale"):
        narrow.load_state_dict(int8)

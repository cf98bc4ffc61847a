"""What PyTorch's own test_optim.py asks of torch.optim.Muon, asked of muonium.torch.Muon: the inputs
are those of torch.testing._internal.common_optimizers.

Not asked, with the reasons:
  duplicate parameters     tied parameters count once here, without a warning
  "only supports 2D"       other parameters get AdamW here
  complex parameters       are refused when the optimizer is made, not by the first step
  float64                  is refused by name; the cases run in float32
  a tensor as lr           is read as a number, not kept as a tensor that is changed in place
"""
import copy
import io
import itertools

import pytest
import torch
import torch.testing._internal.common_optimizers as common

import beside  # noqa: F401, finds the package

from muonium.torch import Muon

pytestmark = pytest.mark.filterwarnings("ignore:the parameters have no names")
torch.set_num_threads(1)
INPUTS = common.optim_inputs_func_muon("cpu")
each_input = pytest.mark.parametrize("kwargs", [i.kwargs for i in INPUTS],
                                     ids=[i.desc for i in INPUTS])
UNASKED = {  # and what is expected of them instead
    "a param group cannot have duplicate parameters":
        lambda params: len(Muon(params).param_groups[0]["params"]) == 1,
    "only support 2D parameters":
        lambda params: Muon([p.requires_grad_() for p in params]).report()[0].optimizer == "adam",
    "does not support complex parameters": lambda params: refused(params, "complex64"),
}


def refused(params, why):
    with pytest.raises(TypeError, match=why):
        Muon(params)
    return True



def problem(seed=0):
    """A least-squares problem of two matrices, as test_optim.py has it."""
    torch.manual_seed(seed)
    params = [torch.nn.Parameter(torch.randn(10, 5)), torch.nn.Parameter(torch.randn(10, 1))]
    return params, torch.randn(5), torch.randn(10)


def closure_of(params, x, y, optimizer):
    def closure():
        optimizer.zero_grad()
        loss = ((params[0] @ x + params[1].squeeze(1) - y) ** 2).mean()
        loss.backward()
        return loss
    return closure


@pytest.mark.parametrize("error", common.optim_error_inputs_func_muon("cpu", torch.float32),
                         ids=lambda e: e.optimizer_error_input.desc)
def test_errors(error):
    given = error.optimizer_error_input
    if given.desc in UNASKED:
        assert UNASKED[given.desc](given.params)
        return
    params = problem()[0] if given.params is None else given.params
    if issubclass(error.error_type, Warning):
        with pytest.warns(error.error_type, match=error.error_regex):
            Muon(params, **given.kwargs)
    else:
        with pytest.raises(error.error_type, match=error.error_regex):
            Muon(params, **given.kwargs)


@each_input
@pytest.mark.parametrize("scheduled", [False, True])
def test_goes_the_right_direction(kwargs, scheduled):
    params, x, y = problem()
    optimizer = Muon(params, **kwargs)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.9) if scheduled else None
    closure = closure_of(params, x, y, optimizer)
    first = closure().item()
    for _ in range(100):
        loss = optimizer.step(closure)
        if scheduler:
            scheduler.step()
    assert loss.item() < first


@each_input
def test_step_without_gradients_changes_nothing(kwargs):
    params = problem()[0]
    before = copy.deepcopy(params)
    optimizer = Muon(params, **kwargs)
    optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(params, before)) and len(optimizer.state) == 0


@each_input
def test_step_with_zero_gradients_only_decays(kwargs):
    params = [torch.nn.Parameter(torch.ones(8, 8))]
    params[0].grad = torch.zeros(8, 8)
    optimizer = Muon(params, **{**kwargs, "weight_decay": 0.0})
    optimizer.step()
    assert torch.equal(params[0], torch.ones(8, 8))


def test_can_be_printed():
    text = repr(Muon(problem()[0], lr=0.5))
    assert "Muon" in text and "lr: 0.5" in text


@each_input
def test_state_dict_is_deterministic(kwargs):
    params, x, y = problem()
    optimizer = Muon(params, **kwargs)
    closure = closure_of(params, x, y, optimizer)
    for _ in range(5):
        optimizer.step(closure)
    twins = copy.deepcopy(params)
    resumed = Muon(twins, **kwargs)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    again = closure_of(twins, x, y, resumed)
    for _ in range(5):
        assert torch.equal(optimizer.step(closure), resumed.step(again))
    assert all(torch.equal(p, q) for p, q in zip(params, twins))


@each_input
@pytest.mark.parametrize("named", list(itertools.product([False, True], repeat=2)))
def test_state_dicts_to_and_from_named(kwargs, named):
    def make(params, with_names):
        return Muon(list(zip("ab", params)) if with_names else params, **kwargs)

    params, x, y = problem()
    optimizer = make(params, named[0])
    optimizer.step(closure_of(params, x, y, optimizer))
    twins = copy.deepcopy(params)
    resumed = make(twins, named[1])
    resumed.load_state_dict(optimizer.state_dict())
    optimizer.step(closure_of(params, x, y, optimizer))
    resumed.step(closure_of(twins, x, y, resumed))
    assert all(torch.equal(p, q) for p, q in zip(params, twins))


def test_group_options():
    params, x, y = problem()
    optimizer = Muon([{"params": params[:1], "lr": 0.5}, {"params": params[1:]}], lr=0.25,
                     weight_decay=0.0)
    assert [g["lr"] for g in optimizer.param_groups] == [0.5, 0.25]
    before = copy.deepcopy(params)
    optimizer.step(closure_of(params, x, y, optimizer))
    assert all(not torch.equal(p, q) for p, q in zip(params, before))


def test_hooks():
    params, x, y = problem()
    optimizer = Muon(params)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    optimizer.register_state_dict_pre_hook(lambda *_: calls.append("save"))
    optimizer.register_state_dict_post_hook(lambda *_: calls.append("saved"))
    optimizer.register_load_state_dict_pre_hook(lambda *_: calls.append("load"))
    optimizer.register_load_state_dict_post_hook(lambda *_: calls.append("loaded"))
    optimizer.step(closure_of(params, x, y, optimizer))
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["pre", "post", "save", "saved", "load", "loaded"]


def test_copies_have_all_public_attributes():
    params, x, y = problem()
    optimizer = Muon(params)
    optimizer.step(closure_of(params, x, y, optimizer))
    twin = copy.deepcopy(optimizer)
    public = {name for name in optimizer.__dict__ if not name.startswith("_")}
    assert public <= {name for name in dir(twin)} and len(twin.state) == len(optimizer.state)


def test_state_is_not_empty_and_steps_count():
    params, x, y = problem()
    optimizer = Muon(params)
    for _ in range(3):
        optimizer.step(closure_of(params, x, y, optimizer))
    for p in params:
        state = dict(optimizer.state[p])
        assert state.pop("step") == 3 and all(value.any() for value in state.values())

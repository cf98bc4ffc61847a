"""The objects of the Python package as Python treats them: copied, pickled, printed, and made of
the wrong things. Messages say what was meant, and carry no control character of a name."""
import copy
import ctypes
import pickle

import numpy as np
import pytest

import package  # noqa: F401, finds the library

import muonium  # noqa: E402
from muonium import _library, _options  # noqa: E402


def weights():
    rng = np.random.default_rng(3)
    return {"qkv": rng.standard_normal((24, 16)).astype("f4"),
            "w": np.asfortranarray(rng.standard_normal((8, 12)).astype("f4")),
            "half": rng.standard_normal((8, 8)).astype("f2"),
            "bias": rng.standard_normal(24).astype("f4")}


def gradients(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(w.shape).astype(w.dtype) for name, w in weights().items()}


def some_optimizer():
    """An optimizer with options of every kind, after three steps."""
    params = weights()
    optimizer = muonium.Optimizer(params, "keller", {"qkv": {"row_splits": [8, 8, 8]}}, normuon=True,
                                  adam_lr=0.007, patterns=["none"], master=True,
                                  coefficients=[(2.0, -1.5, 0.5)], state_dtype="bf16")
    for seed in range(3):
        optimizer.step(gradients(seed))
        optimizer.lr *= 0.9
    optimizer.weight_decay = 0.01
    return params, optimizer


# ---- copies ----

COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda pair: pickle.loads(pickle.dumps(pair)),
    "oldest pickle": lambda pair: pickle.loads(pickle.dumps(pair, 2)),
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_go_on_bit_for_bit(how):
    params, optimizer = some_optimizer()
    other_params, other = COPIES[how]((params, optimizer))
    assert (other.lr, other.weight_decay, other.momentum) == (
        optimizer.lr, optimizer.weight_decay, optimizer.momentum)
    assert other.report() == optimizer.report() and repr(other) == repr(optimizer)
    for seed in range(3, 6):
        optimizer.step(gradients(seed))
        other.step(gradients(seed))
    for name in params:
        assert other_params[name] is not params[name]
        assert np.array_equal(other_params[name], params[name])
    # Neither touches the other's arrays or state.
    before = {name: w.copy() for name, w in params.items()}
    other.step(gradients(6))
    assert all(np.array_equal(before[name], params[name]) for name in params)
    assert optimizer.report()[0].steps == 6 and other.report()[0].steps == 7


def test_a_copy_alone_has_parameters_of_its_own():
    params, optimizer = some_optimizer()
    before = {name: w.copy() for name, w in params.items()}
    copy.deepcopy(optimizer).step(gradients(7))
    assert all(np.array_equal(before[name], params[name]) for name in params)


def test_a_rate_that_was_never_changed_is_copied_exactly():
    # adam_lr / lr * lr is not adam_lr: a copy must not go that way unasked.
    assert 0.49 / 0.03 * 0.03 != 0.49
    optimizer = muonium.Optimizer(weights(), lr=0.03, adam_lr=0.49, patterns=[])
    assert copy.deepcopy(optimizer).report()[-1].lr == optimizer.report()[-1].lr == 0.49


def test_an_interrupted_copy_raises_the_interrupt(monkeypatch):
    _, optimizer = some_optimizer()

    def interrupted(address, size):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ctypes, "string_at", interrupted)
        with pytest.raises(KeyboardInterrupt):
            copy.deepcopy(optimizer)
    assert repr(copy.deepcopy(optimizer)) == repr(optimizer)


# ---- printing ----


def test_representations():
    _, optimizer = some_optimizer()
    assert repr(optimizer) == ("<muonium.Optimizer recipe='keller' lr=0.01458: 3 Muon and 1 AdamW "
                               "parameters, 3 steps>")
    assert "recipe='muonium'" in repr(muonium.Optimizer({}))
    row = muonium.route({"a\x1b[2J.w": (8, 8)})[0]
    assert repr(row).startswith("Report(name='a\\x1b[2J.w', optimizer='muon', reason='ok', ")
    _, certificate = muonium.orthogonalize(np.eye(4, dtype="f4"), return_certificate=True)
    assert repr(certificate).startswith("Certificate(outcome='orthogonalized', rescued=0, ")


# ---- what is not a dict of names ----


class Module:
    def named_parameters(self):
        return iter(weights().items())


@pytest.mark.parametrize("given, words", [
    ([np.ones((4, 4), "f4")], ["params is of type list", "dict of names to arrays", '"mlp.w"']),
    (iter(weights().items()), ["dict(pairs)"]),
    (np.ones((4, 4), "f4"), ["of type ndarray"]),
    (Module(), ["muonium.torch.Muon", "dict(model.named_parameters())"]),
    (None, ["of type NoneType"]),
], ids=["list", "pairs", "array", "module", "None"])
def test_parameters_without_names_are_explained(given, words):
    with pytest.raises(TypeError) as caught:
        muonium.Optimizer(given)
    assert all(word in str(caught.value) for word in words)


def test_other_lists_are_explained():
    optimizer = muonium.Optimizer(weights())
    with pytest.raises(TypeError, match="grads is of type list: use a dict"):
        optimizer.step([np.ones((4, 4), "f4")])
    with pytest.raises(TypeError, match="shapes is of type list: use a dict"):
        muonium.route([(4, 4)])


# ---- options ----


@pytest.mark.parametrize("given, meant", [
    ("learning_rate", "lr"), ("Learning_Rate", "lr"), ("wd", "weight_decay"), ("LR", "lr"),
    ("adam_betas", "betas"), ("beta1", "adam_beta1"), ("newton_schulz_steps", "steps"),
    ("epsilon", "eps"), ("num_heads", "heads"), ("momentun", "momentum"),
    ("nesterow", "nesterov"), ("weight_decays", "weight_decay"), ("dtype", "precision"),
])
def test_unknown_options_suggest_what_is_meant(given, meant):
    with pytest.raises(TypeError, match=f"unknown option '{given}': did you mean '{meant}'"):
        muonium.Optimizer({}, **{given: 1})


def test_synonyms_lead_to_options():
    assert set(_options.SYNONYMS.values()) <= _options.KNOWN
    assert not set(_options.SYNONYMS) & _options.KNOWN
    with pytest.raises(TypeError, match="known are .*lr, .*momentum"):
        muonium.Optimizer({}, zzzzzz=1)


def test_options_of_the_whole_are_refused_for_one_parameter():
    with pytest.raises(ValueError, match="each gives 'w' the option 'lr', which is one of the whole"):
        muonium.Optimizer(weights(), each={"w": {"lr": 0.1}})
    chosen = muonium.Optimizer(weights(), each={"w": {"route": "adam"}})
    assert chosen.report()[1].optimizer == "adam"


# ---- names that a terminal would obey ----

EVIL = "a\x1b[2J\r\n\u202ew"


def raised(call):
    with pytest.raises(Exception) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("call", [
    lambda: muonium.Optimizer({EVIL: None}),
    lambda: muonium.Optimizer({EVIL: np.ones((4, 4))}),
    lambda: muonium.Optimizer({EVIL: np.broadcast_to(np.float32(1), (4, 4))}),
    lambda: muonium.Optimizer({EVIL: np.ones((1,) * 9, "f4")}),
    lambda: muonium.Optimizer({}, each={EVIL: {}}),
    lambda: muonium.Optimizer({EVIL: np.ones((4, 4), "f4")}, each={EVIL: {"lr": 1}}),
    lambda: muonium.Optimizer({EVIL: np.ones((4, 4), "f4")}, each={EVIL: {EVIL: 1}}),
    lambda: muonium.Optimizer({}, **{EVIL: 1}),
    lambda: muonium.Optimizer({}, EVIL),
    lambda: muonium.Optimizer({}, patterns=EVIL),
    lambda: muonium.Optimizer({EVIL: np.ones((4, 4), "f4")}).step({EVIL: None, "b" + EVIL: None}),
    lambda: muonium.Optimizer({EVIL: np.ones((4, 4), "f4")}).step({EVIL: np.ones(4, "f4")}),
    lambda: muonium.Optimizer({EVIL: np.ones((4, 4), "f4")}).step({EVIL: np.ones((4, 4))}),
    lambda: muonium.Optimizer({EVIL: np.ones((4, 4), "f4")}).step({EVIL: [1]}),
    lambda: muonium.Optimizer({EVIL: np.ones((4, 4), "f4")}).load("/" + EVIL),
    lambda: muonium.route({EVIL: (4, -1)}),
    lambda: muonium.route({EVIL: (4, "four")}),
    lambda: muonium.orthogonalize(np.eye(4, dtype="f4"), form=EVIL),
    lambda: muonium.orthogonalize(np.eye(4, dtype="f4"), coefficients=EVIL),
    lambda: muonium.orthogonalize(np.eye(4, dtype="f4"), direct_set=EVIL),
    lambda: _library._require_version("9.9.9", "/lib/" + EVIL),
], ids=range(21))
def test_messages_carry_no_control_characters(call):
    message = raised(call)
    assert message.isprintable(), repr(message)
    # What could not be shown is told by an escape, or by the library's question mark.
    assert "\\x1b[2J" in message or "a?[2J" in message, message


def test_what_is_shown_of_names():
    assert _library.shown("mlp.w µ 重み 'q'") == "mlp.w µ 重み 'q'"
    assert _library.shown(EVIL) == "a\\x1b[2J\\r\\n\\u202ew"

"""What a type checker and help() are told of the Python package is so: every public name is
annotated, the keywords are those that are understood, and mypy --strict accepts what works and
refuses what does not.

mypy is that of the interpreter, or is fetched by pip, once, into the build directory.
"""
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import typing

import pytest

from package import BUILD, ROOT

import muonium  # noqa: E402
from muonium import _options, _types  # noqa: E402

PLAIN = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


# ---- annotations ----


def functions_of(name):
    """The public functions behind a public name, with their names."""
    value = getattr(muonium, name)
    if not inspect.isclass(value):
        return {name: value}
    found = {}
    for key, member in vars(value).items():
        if isinstance(member, property):
            found[f"{name}.{key}"], found[f"{name}.{key} ="] = member.fget, member.fset
        elif inspect.isfunction(member) and (key == "__init__" or not key.startswith("_")):
            found[f"{name}.{key}"] = member
    return found


@pytest.mark.parametrize("name", muonium.__all__)
def test_public_names_are_annotated(name):
    value = getattr(muonium, name)
    assert value.__doc__
    if issubclass(value if inspect.isclass(value) else object, tuple):  # a NamedTuple
        assert set(typing.get_type_hints(value)) == set(value._fields)
        return
    for called, function in functions_of(name).items():
        signature = inspect.signature(function)
        bare = [p for p in signature.parameters.values()
                if p.annotation is p.empty and p.name != "self"]
        assert not bare, called
        assert signature.return_annotation is not signature.empty, called
        typing.get_type_hints(function, {**vars(sys.modules[function.__module__]),
                                         **vars(_types), "numpy": pytest.importorskip("numpy")})


def test_keywords_are_those_that_are_understood():
    assert set(typing.get_type_hints(_types.Options)) == _options.KNOWN
    assert (set(typing.get_type_hints(_types.ParameterOptions))
            == _options.OF_TENSORS | {"conv_mode", "route"})
    parameters = inspect.signature(muonium.orthogonalize).parameters.values()
    assert (set(typing.get_type_hints(_types.IterationOptions))
            == {p.name for p in parameters} - {"x", "out", "return_certificate"})


def literals_of(hint):
    """The strings that a hint allows, or none."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    return tuple(x for part in typing.get_args(hint) for x in literals_of(part))


@pytest.mark.parametrize("name", sorted(_options.CHOICES))
def test_choices_are_those_that_are_understood(name):
    hints = typing.get_type_hints(_types.Options)
    keywords = [name] + [alias for alias, meant in _options.ALIASES.items() if meant == name]
    for keyword in keywords:
        expected = _options.CHOICES[name]
        if keyword == "conv_mode":
            expected = tuple(_options.CONV_MODES)
        elif keyword == "adjust_lr_fn":
            expected = (*expected, *_options.SCALE_ALIASES)
        assert literals_of(hints[keyword]) == expected


# ---- mypy ----

# Every line is accepted, but for those that a comment marks with what mypy says.
SAMPLE = '''
import muonium
import numpy
from numpy.typing import NDArray
from typing import Any, Dict, List, Tuple, Union
from typing_extensions import assert_type

x = numpy.ones((4, 4), numpy.float32)
Certificates = Union[muonium.Certificate, List[muonium.Certificate]]
assert_type(muonium.orthogonalize(x), "NDArray[Any]")
assert_type(muonium.orthogonalize(x, steps=8, return_certificate=True),
            "Tuple[NDArray[Any], Certificates]")
o: NDArray[numpy.float32] = muonium.orthogonalize(x, precision="f64", out=x)
maybe: bool = len(o) > 3
assert_type(muonium.orthogonalize(x, return_certificate=maybe), Any)
optimizer = muonium.Optimizer({"w": x}, lr=0.1, betas=(0.9, 0.95), each={"w": {"heads": 2}})
optimizer.step({"w": x})
optimizer.lr *= 0.5
assert_type(optimizer.lr, float)
assert_type(optimizer.report()[0].reason, str)
assert_type(muonium.presets(), Dict[str, List[Tuple[float, float, float]]])
assert_type(muonium.threads(), int)
assert_type(muonium.__version__, str)

muonium.torch.Muon([], lr=0.1, recipe="muonium", normuon=True).init_state()
assert_type(muonium.torch.Muon([]).report()[0].steps, int)
assert_type(muonium.torch.Muon([]).counters(), Dict[str, Any])
offload: muonium.torch.Muon = muonium.torch.OffloadMuon([], max_norm=1.0, bucket_bytes=1 << 20)
assert_type(muonium.torch.parameter_groups(Any), List[Dict[str, Any]])
assert_type(muonium.torch.MuonFactory(lr=0.1)(Any, betas=(0.9, 0.95)), muonium.torch.Muon)

muonium.torch.Muon([], weight_decay="much")  # incompatible type "str"
muonium.torch.OffloadMuon([], max_norm="1")  # incompatible type "str"
muonium.torch.Moun([])  # has no attribute "Moun"
muonium.torch.orthogonalize(x, steps="5")  # incompatible type "str"
muonium.orthogonalise(x)  # has no attribute "orthogonalise"
muonium.orthogonalize(x, stesp=3)  # Unexpected keyword argument "stesp"
muonium.orthogonalize(x, precision="f23")  # No overload variant
muonium.Optimizer({"w": x}, learning_rate=0.1)  # Unexpected keyword argument "learning_rate"
muonium.Optimizer({"w": x}, each={"w": {"head": 1}})  # Extra key "head"
muonium.Optimizer([x])  # incompatible type "list
muonium.route({"w": (4, 4)}, momentum_form="lerpp")  # incompatible type "Literal['lerpp']"
muonium.polar_express("five")  # incompatible type "str"
optimizer.lr = "large"  # Incompatible types in assignment
optimizer.momentun = 0.9  # has no attribute "momentun"
'''


@pytest.fixture(scope="module")
def mypy():
    """The command that runs mypy, and its environment."""
    if importlib.util.find_spec("mypy"):
        return [sys.executable, "-m", "mypy"], PLAIN
    place = BUILD / "mypy"
    if not (place / "mypy").is_dir():
        fetched = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--timeout", "5",
                                  "--retries", "0", "--target", str(place), "mypy>=1.11"],
                                 env=PLAIN, capture_output=True, text=True)
        if fetched.returncode != 0:
            pytest.skip(f"mypy is neither installed nor to be had by pip: {fetched.stderr[-300:]}")
    return [sys.executable, "-m", "mypy"], {**PLAIN, "PYTHONPATH": str(place)}


def test_mypy_believes_the_types(mypy, tmp_path):
    pytest.importorskip("numpy")
    command, environment = mypy
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    # PyTorch is large, and not what is checked here.
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n"
                                       "[mypy-muonium.*]\nfollow_imports = silent\n")
    done = subprocess.run(
        [*command, "--strict", "--config-file", "mypy.ini", "--cache-dir", str(BUILD / "mypy-cache"),
         "--no-error-summary", "sample.py"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**environment, "MYPYPATH": str(ROOT / "python")})
    assert done.returncode in (0, 1), done.stdout + done.stderr
    said = {}
    for line, text in re.findall(r"^sample\.py:(\d+): error: (.*)$", done.stdout, re.M):
        said[int(line)] = said.get(int(line), "") + text
    expected = {number: line.split("  # ")[1]
                for number, line in enumerate(SAMPLE.splitlines(), 1) if "  # " in line}
    assert len(expected) == 14
    assert set(said) == set(expected), done.stdout
    for number, text in expected.items():
        assert text in said[number]

"""The fixtures in tests/data are what their script makes, file by file and byte for byte."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def script():
    path = ROOT / "tools" / "make_hostile_safetensors.py"
    spec = importlib.util.spec_from_file_location("make_hostile_safetensors", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed(directory):
    files = sorted((ROOT / "tests" / "data" / directory).glob("*.safetensors"))
    return {path.stem: path.read_bytes() for path in files}


def test_hostile_files():
    made = script().HOSTILE
    assert len(made) > 100
    assert committed("hostile") == {name: content for name, (content, _) in made.items()}


def test_messages():
    lines = (ROOT / "tests/data/hostile/expected.txt").read_text("utf-8").splitlines()
    made = script().HOSTILE
    assert lines == [f"{name}.safetensors\t{made[name][1]}" for name in sorted(made)]


def test_good_files():
    made = script().GOOD
    assert len(made) > 10
    assert committed("good") == made

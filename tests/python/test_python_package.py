"""The Python package as an environment has it: what a wheel holds, its page and its metadata,
and what it says where NumPy or PyTorch is not installed."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import torch_isa

torch_isa.prepare()

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MUONIUM_BUILD_DIR", ROOT / "build"))
PROJECT = (ROOT / "pyproject.toml").read_text()
PAGE = (ROOT / "python" / "README.md").read_text("utf-8")
HEADER = (ROOT / "include" / "muonium.h").read_text()
VERSION = re.search(r'MUONIUM_VERSION_STRING "(.*)"', HEADER).group(1)


def python(program, *without, directory=ROOT / "python", **environment):
    """What a Python prints in which the packages `without` cannot be found."""
    hidden = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {without!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Missing())
"""
    done = subprocess.run([sys.executable, "-c", hidden + program], capture_output=True, text=True,
                          cwd="/", env={**os.environ, "PYTHONPATH": str(directory),
                                        "MUONIUM_LIBRARY": str(BUILD / "libmuonium.so"),
                                        **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- what a wheel holds ----


def test_installed_component_is_complete(tmp_path):
    plain = {k: v for k, v in os.environ.items() if k not in ("DESTDIR", "LD_PRELOAD")}
    done = subprocess.run(["cmake", "--install", str(BUILD), "--component", "python",
                           "--prefix", str(tmp_path)], capture_output=True, text=True, env=plain)
    assert done.returncode == 0, done.stderr
    installed = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert installed == {"muonium/libmuonium.so", "bin/muonium"}
    # The command needs nothing beside it.
    said = subprocess.run([tmp_path / "bin" / "muonium", "info"], capture_output=True, text=True)
    assert said.returncode == 0 and VERSION in said.stdout
    # Nor does the package, with the library inside it.
    shutil.copytree(ROOT / "python" / "muonium", tmp_path / "muonium", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__"))
    told = python("import muonium; print(muonium.info()['library'])", directory=tmp_path,
                  MUONIUM_LIBRARY="")
    assert told.strip() == str(tmp_path / "muonium" / "libmuonium.so")
    assert (tmp_path / "muonium" / "py.typed").is_file()


def test_build_makes_what_the_component_installs():
    assert re.search(r'build.targets = \["muonium-shared", "muonium-command"\]', PROJECT)
    assert 'install.components = ["python"]' in PROJECT


# ---- metadata ----


def test_metadata():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads(PROJECT)["project"]
    assert set(project["optional-dependencies"]) == {"numpy", "torch", "jax"}
    assert "Typing :: Typed" in project["classifiers"]
    assert project["urls"] and all(u.startswith("https://") for u in project["urls"].values())
    assert (ROOT / project["readme"]).is_file() and project["license"] == "MIT"
    for extra in project["optional-dependencies"]:
        assert f'pip install ".[{extra}]"' in PAGE


def test_links_of_the_page_work_anywhere():
    targets = re.findall(r"\]\(([^)]*)\)|<(?:a|img)[^>]*(?:href|src)=\"([^\"]*)\"", PAGE)
    assert all(a.startswith("https://") or b.startswith("https://") for a, b in targets)


@pytest.mark.parametrize("program", re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S),
                         ids=lambda text: re.findall(r"muonium\.\w+", text)[0])
def test_programs_of_the_page_run(program):
    if "LD_PRELOAD" in os.environ and "torch" in program:
        pytest.skip("a framework that is not instrumented")
    for package in ("numpy", "torch"):
        if f"import {package}" in program:
            pytest.importorskip(package)
    if "muonium.optax" in program:  # make compare runs it with the versions that it pins
        pytest.importorskip("optax")
        pytest.importorskip("jax")
    python(program)


def test_commands_of_the_page_are_there():
    listed = subprocess.run([BUILD / "muonium", "--help"], capture_output=True, text=True).stdout
    named = re.findall(r"^muonium (\w+)", PAGE, re.M)
    assert len(named) == 3 and all(re.search(rf"^  {name} ", listed, re.M) for name in named)


# ---- packages that are not installed ----


def test_without_torch():
    program = """
import muonium
print(hasattr(muonium, "torch"), hasattr(muonium, "tocrh"))
try:
    muonium.torch
except AttributeError as error:
    print(error)
"""
    program += """
try:
    import muonium.torch
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    flag, message, imported = python(program, "torch").splitlines()
    assert flag == "False False"
    assert 'pip install "muonium[torch]"' in message
    assert imported.startswith("torch ") and 'pip install "muonium[torch]"' in imported


@pytest.mark.parametrize("name, hidden, needs", [
    ("jax", ("jax",), "JAX"), ("optax", ("jax", "optax"), "JAX")])
def test_without_jax(name, hidden, needs):
    program = f"""
import muonium
print(hasattr(muonium, {name!r}))
try:
    import muonium.{name}
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    flag, imported = python(program, *hidden).splitlines()
    assert flag == "False"
    assert f"needs {needs}" in imported and 'pip install "muonium[jax]"' in imported


def test_with_a_torch_that_does_not_load(tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libc10.so: cannot open')\n")
    program = "import muonium; print(hasattr(muonium, 'torch'), muonium.__version__)"
    paths = f"{tmp_path}{os.pathsep}{ROOT / 'python'}"
    assert python(program, directory=paths).split() == ["False", VERSION]


def test_torch_is_imported_when_asked_for():
    pytest.importorskip("torch")
    if "LD_PRELOAD" in os.environ:
        pytest.skip("a framework that is not instrumented")
    program = ("import muonium, sys; print('torch' in sys.modules); "
               "print(hasattr(muonium, 'torch'), muonium.torch.Muon.__name__)")
    assert python(program).split() == ["False", "True", "Muon"]


def test_without_numpy():
    program = """
import muonium
print(len(muonium.presets()) > 0, muonium.route({"w": (8, 8)})[0].optimizer)
try:
    muonium.orthogonalize([[1.0]])
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    worked, message = python(program, "numpy").splitlines()
    assert worked == "True muon"
    assert message.startswith("numpy muonium.orthogonalize needs NumPy")
    assert 'pip install "muonium[numpy]"' in message

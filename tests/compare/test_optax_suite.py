"""The tests of optax for its Muon, which are part of its package, run on muonium.optax: the import
of the module is replaced, and nothing else."""
import pathlib

import jax
import optax.contrib

import beside  # noqa: F401, finds the package

jax.config.update("jax_platforms", "cpu")
PATH = pathlib.Path(optax.contrib.__file__).with_name("_muon_test.py")
THEIRS, OURS = "from optax.contrib import _muon\n", "from muonium import optax as _muon\n"

_source = PATH.read_text("utf-8")
assert _source.count(THEIRS) == 1
_module = {"__name__": "optax_muon_test"}
exec(compile(_source.replace(THEIRS, OURS), str(PATH), "exec"), _module)
MuonTest = _module["MuonTest"]


def test_they_are_all_there():
    assert len([name for name in dir(MuonTest) if name.startswith("test")]) == 32

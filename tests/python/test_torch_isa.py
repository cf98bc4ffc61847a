"""torch_isa.py: oneDNN is limited where a probe crashes, and nowhere else."""
import os
import pathlib
import sys
import warnings

import pytest

import torch_isa

CRASHES = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGILL)"]
WORKS = [sys.executable, "-c", ""]
FAILS = [sys.executable, "-c", "import no_such_module"]


@pytest.fixture
def environment():
    return {name: value for name, value in os.environ.items() if name not in torch_isa.LIMITS}


@pytest.fixture
def amx(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("flags : avx512_bf16 amx_bf16 amx_tile\n")
    return path


def test_a_crash_limits_onednn_and_says_so(environment, amx):
    with pytest.warns(UserWarning, match="signal 4.*ONEDNN_MAX_CPU_ISA=AVX512_CORE"):
        assert torch_isa.prepare(CRASHES, amx, environment)
    assert environment["ONEDNN_MAX_CPU_ISA"] == environment["DNNL_MAX_CPU_ISA"] == "AVX512_CORE"


def test_a_machine_of_unknown_features_is_probed(environment, tmp_path):
    with pytest.warns(UserWarning):
        assert torch_isa.prepare(CRASHES, tmp_path / "missing", environment)


@pytest.mark.parametrize("probe", [WORKS, FAILS])
def test_no_crash_limits_nothing(environment, amx, probe):
    before = dict(environment)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not torch_isa.prepare(probe, amx, environment)
    assert environment == before


def test_without_amx_nothing_is_probed(environment, tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("flags : avx2\n")
    assert not torch_isa.prepare(CRASHES, path, environment)


def test_what_the_user_has_set_stays(environment, amx):
    environment["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    assert not torch_isa.prepare(CRASHES, amx, environment)
    assert environment["ONEDNN_MAX_CPU_ISA"] == "AVX2" and "DNNL_MAX_CPU_ISA" not in environment


def test_every_test_that_imports_torch_prepares_first():
    here = pathlib.Path(__file__).resolve()
    for path in sorted(here.parents[1].glob("*/test_*.py")):
        if path != here and path.parent.name != "compare":
            text = path.read_text("utf-8")
            imported = text.find('importorskip("torch")')
            assert imported < 0 or 0 <= text.find("torch_isa.prepare()") < imported, path
            assert "\nimport torch\n" not in text, path

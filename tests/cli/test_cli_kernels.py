"""Which kernel multiplies bf16: by measured rates, where the CPU has instructions for it."""

import json
import re
import subprocess

import numpy as np
import pytest

from muonium_command import MUONIUM, environment, run

NORMS = ("frobenius", "schatten", "aol", "spectral", "none")


def cpu(**variables):
    return json.loads(run("info", "--json", env=environment(**variables))[0])["cpu"]


@pytest.fixture(name="native", scope="module")
def fixture_native():
    """The CPU's description; the tests are of those that multiply bf16."""
    found = cpu(MUONIUM_CPU="")
    if found["isa"] not in ("avx512_bf16", "amx"):
        pytest.skip("this CPU or build has no AVX512-BF16")
    return found


def test_amx_is_used_wherever_it_is(native):
    """Its results differ in rounding, so that a measurement must not decide."""
    if native["isa"] != "amx":
        pytest.skip("this CPU or build has no AMX")
    assert native["bf16_kernel"] == "amx_bf16_32x32"
    assert "wherever the CPU has it" in native["bf16_reason"]


def test_info_says_which_and_why():
    found = cpu(MUONIUM_CPU="portable")
    assert found["bf16_kernel"] == found["kernel"]
    assert found["bf16_reason"] == "MUONIUM_CPU=portable"
    out, _ = run("info", env=environment(MUONIUM_CPU="portable"))
    assert f"\nbf16         {found['bf16_kernel']} (MUONIUM_CPU=portable)\n" in out


def test_the_variable_decides(native):
    assert cpu(MUONIUM_CPU="avx512_bf16")["bf16_kernel"] == "avx512_bf16_8x32"
    assert cpu(MUONIUM_CPU="avx512")["bf16_kernel"] == native["kernel"]


def test_a_busy_machine_does_not_change_the_choice(native):
    """Twelve at a time: none has a CPU of its own."""
    if native["isa"] == "amx":
        pytest.skip("nothing is measured where there is AMX")
    bf16, f32 = map(float, re.search(r"products (\d+) GF/s, f32 (\d+)",
                                     native["bf16_reason"]).groups())
    if 1 < bf16 / f32 < 1.4:
        pytest.skip("the rates are so close that either choice is right")
    all_at_once = [subprocess.Popen([str(MUONIUM), "info", "--json"], stdout=subprocess.PIPE,
                                    env=environment(MUONIUM_CPU="")) for _ in range(12)]
    chosen = [json.loads(each.communicate()[0])["cpu"]["bf16_kernel"] for each in all_at_once]
    assert chosen == [native["bf16_kernel"]] * 12
    assert native["bf16_kernel"] == ("avx512_bf16_8x32" if bf16 > f32 else native["kernel"])


@pytest.mark.parametrize("norm", NORMS)
def test_the_choice_changes_no_bit(tmp_path, native, norm):
    del native
    results = {}
    for shape in ((64, 64), (33, 100), (200, 70)):
        matrix = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
        np.save(tmp_path / "x.npy", matrix / (np.linalg.norm(matrix) if norm == "none" else 1))
        for isa in ("avx512", "avx512_bf16"):
            coefficients = ("-c", "aol") if norm == "aol" else ()
            for form in ("standard", "gram"):
                run("orthogonalize", tmp_path / "x.npy", tmp_path / "y.npy", "--precision",
                    "bf16", "--normalize", norm, "--form", form, *coefficients,
                    env=environment(MUONIUM_CPU=isa))
                results[shape, form, isa] = (tmp_path / "y.npy").read_bytes()
    for shape, form, _ in list(results):
        assert results[shape, form, "avx512"] == results[shape, form, "avx512_bf16"]

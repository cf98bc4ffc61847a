"""The muonium command: its manners, muonium info and muonium coeffs."""

import json
import os
import re
import signal
import subprocess
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from muonium_command import MUONIUM, environment, run

# The default generator's table for ten steps with safety 1e-2, from 60 digits.
TEN_STEPS = """
8.2373124904955546 -23.157747414558191 16.680568411445908
4.0824419990648337 -2.8930477353325856 0.52528492569756446
3.926347992254652  -2.8547468034765262 0.53180224228949824
3.2982187133085161 -2.4245419810267084 0.48632008358844114
2.2970369434552582 -1.6366255812590318 0.40026284559536307
1.8763805351440404 -1.2347896577722244 0.35891887501668474
1.8564423485604249 -1.21324498809086   0.35680034878126737
1.8564356435863227 -1.2132376849334816 0.35679963285487626
1.8564356435704306 -1.2132376849161717 0.35679963285317939
1.8750000000061269 -1.2500000000068077 0.37500000000068079
"""

COMMANDS = ["info", "coeffs", "orthogonalize", "route", "step", "inspect"]


# ---- manners ----


def test_overview_and_version():
    out, _ = run("--help")
    assert out == run("help")[0] == run("-h")[0]
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", out, re.M)
    version, _ = run("--version")
    assert re.fullmatch(r"muonium \d+\.\d+\.\d+\ncompiler (gcc|clang) \d.*, (x86_64|aarch64), \S.*\n", version)


def test_no_command_prints_help_on_stderr():
    out, error = run(code=2)
    assert out == "" and "Usage:" in error


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_usage_options_and_example(name):
    out, _ = run(name, "--help")
    assert out == run("help", name)[0] == run(name, "-h")[0]
    assert f"Usage: muonium {name}" in out and "\nOptions:\n" in out
    assert re.search(rf"\nExample:\n  .*muonium {name}", out)
    text = out.split("\nExample:")[0]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["coefs"], "unknown command 'coefs'; did you mean 'coeffs'?"),
        (["inof"], "did you mean 'info'?"),
        (["orthogonalise"], "did you mean 'orthogonalize'?"),
        (["ortho"], "did you mean 'orthogonalize'?"),
        (["zzzzzz"], "unknown command 'zzzzzz'\n"),
        (["--frobnicate"], "unknown option '--frobnicate'"),
        (["help", "nothing"], "unknown command 'nothing'"),
        (["help", "info", "info"], "unexpected argument 'info'"),
        (["coeffs", "--stesp", "3"], "unknown option '--stesp'; did you mean '--steps'?"),
        (["coeffs", "-q"], "unknown option '-q'"),
        (["coeffs", "stray"], "unexpected argument 'stray'"),
        (["coeffs", "--", "--json"], "unexpected argument '--json'"),
        (["coeffs", "--steps"], "--steps needs a value"),
        (["coeffs", "--plot", "--json"], "--plot needs a value"),
        (["coeffs", "--plot="], "--plot is empty"),
        (["coeffs", "--json=yes"], "--json takes no value"),
        (["coeffs", "--json", "--json"], "--json is given twice"),
        (["coeffs", "--steps=0"], "--steps is '0': it must be a whole number from 1 to 64"),
        (["coeffs", "--steps=65"], "--steps is '65'"),
        (["coeffs", "--steps", "-3"], "--steps is '-3'"),
        (["coeffs", "--steps=99999999999999999999"], "--steps is '99999999999999999999'"),
        (["coeffs", "--steps=5x"], "--steps is '5x'"),
        (["coeffs", "--steps= 5"], "--steps is ' 5'"),
        (["coeffs", "--steps="], "--steps is ''"),
        (["coeffs", "--steps=0x5"], "--steps is '0x5'"),
        (["coeffs", "-n5.0"], "--steps is '5.0'"),
        (["coeffs", "--lower=1e-3x"], "--lower is '1e-3x'"),
        (["coeffs", "--lower=0,001"], "--lower is '0,001'"),
        (["coeffs", "--lower=nan"], "--lower is 'nan'"),
        (["coeffs", "--lower=inf"], "--lower is 'inf'"),
        (["coeffs", "--lower=1e999"], "--lower is '1e999'"),
        (["coeffs", "--lower=1e-999"], "--lower is '1e-999'"),
        (["coeffs", "--lower=0x1p-3"], "--lower is '0x1p-3'"),
        (["coeffs", "--lower=."], "--lower is '.'"),
        (["coeffs", "--lower=1e"], "--lower is '1e'"),
        (["coeffs", "--lower=2"], "lower"),
        (["coeffs", "--lower=-0.5"], "lower"),
        (["coeffs", "--safety=-1"], "safety"),
        (["coeffs", "--cushion=1"], "cushion"),
        (["coeffs", "--cubic", "--lower=0"], "lower"),
        (["coeffs", "--preset=original", "--lower=2"], "--lower is 2"),
        (["coeffs", "--preset=orignal"], "did you mean 'original'?"),
        (["coeffs", "--preset=original", "--safety=0.1"], "--safety has no effect with --preset"),
        (["coeffs", "--cubic", "--cushion=0.1"], "--cushion has no effect with --cubic"),
        (["coeffs", "--list", "--steps=3"], "--steps has no effect with --list"),
        (["orthogonalize"], "needs IN OUT, but 0 of 2 are given"),
        (["orthogonalize", "a.npy"], "1 of 2 is given"),
        (["orthogonalize", "a.npy", "b.npy", "c.npy"], "unexpected argument 'c.npy'"),
        (["orthogonalize", "a.npy", "b.npy", "--form=direkt"], "--form is 'direkt'"),
        (["orthogonalize", "a.npy", "b.npy", "--normalize=spectra"], "did you mean 'spectral'?"),
        (["orthogonalize", "a.npy", "b.npy", "--eps=1"], "--eps has no effect"),
        (["orthogonalize", "a.npy", "b.npy", "-c", "cans", "--lower=0.1"], "--lower has no effect"),
        (["orthogonalize", "a.safetensors", "b.npy"], "both must be .safetensors files, or both .npy"),
        (["orthogonalize", "a.npy", "b.safetensors"], "both must be .safetensors files, or both .npy"),
    ],
)
def test_usage_errors(arguments, message):
    out, error = run(*arguments, code=2)
    assert out == "" and message in error


@pytest.mark.parametrize("arguments", [["info"], ["coeffs"], ["coeffs", "--json"], ["--help"]])
def test_unwritable_standard_output(arguments):
    with open("/dev/full", "wb") as full:
        _, error = run(*arguments, code=1, stdout=full)
    assert "cannot write to standard output: No space left on device" in error


@pytest.mark.parametrize("arguments", [["coeffs"], ["coeffs", "--list"], ["--help"]])
def test_a_closed_pipe_ends_quietly(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([MUONIUM, *arguments], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_closed_standard_output():
    done = subprocess.run(
        ["sh", "-c", f"'{MUONIUM}' info >&-"], stderr=subprocess.PIPE, timeout=60
    )
    assert done.returncode == 1 and b"cannot write to standard output" in done.stderr


# ---- info ----


def test_info():
    info = json.loads(run("info", "--json")[0])
    assert info["version"] == run("--version")[0].split()[1]
    assert set(info["cpu"]) == {"isa", "kernel", "reason", "features", "bf16_kernel",
                                "bf16_reason", "auto_precision"}
    assert info["cpu"]["auto_precision"] == ("fixed23" if info["cpu"]["isa"] == "amx" else "f32")
    assert info["threads"] >= 1 and "original" in info["presets"]
    assert set(info["environment"]) >= {"MUONIUM_CPU", "MUONIUM_NUM_THREADS"}
    text, _ = run("info")
    assert info["cpu"]["kernel"] in text and info["build"]["compiler"] in text


def test_info_follows_the_environment():
    variables = environment(MUONIUM_CPU="portable", MUONIUM_NUM_THREADS="3")
    info = json.loads(run("info", "--json", env=variables)[0])
    assert info["cpu"]["isa"] == "portable" and "MUONIUM_CPU" in info["cpu"]["reason"]
    assert info["threads"] == 3 and info["environment"]["MUONIUM_NUM_THREADS"] == "3"


def test_info_with_a_bad_environment_still_informs():
    out, error = run("info", "--json", code=2, env=environment(MUONIUM_CPU='no"\xe4\n'))
    assert json.loads(out)["environment"]["MUONIUM_CPU"] == 'no"\xe4\n'
    assert json.loads(out)["cpu"] is None and "MUONIUM_CPU" in error


@pytest.mark.parametrize("value", ["abc", "0", "-1", "1025", "4x", " 4"])
def test_a_bad_number_of_threads_is_refused(value, tmp_path):
    variables = environment(MUONIUM_NUM_THREADS=value)
    message = f'MUONIUM_NUM_THREADS is "{value}": use a number from 1 to 1024'
    assert message in run("info", "--json", code=2, env=variables)[1]
    np.save(tmp_path / "x.npy", np.eye(4, dtype="f4"))
    files = tmp_path / "x.npy", tmp_path / "y.npy"
    assert message in run("orthogonalize", *files, code=2, env=variables)[1]
    run("coeffs", env=variables)  # which computes on none


def test_json_of_malformed_utf8():
    out, _ = run("info", "--json", code=2, env={**os.environb, b"MUONIUM_CPU": b"a\xff\xc3(\xed\xa0\x80"})
    assert json.loads(out)["environment"]["MUONIUM_CPU"] == "a\ufffd\ufffd(\ufffd\ufffd\ufffd"


# ---- coeffs ----


def test_coefficients_against_the_exact_table():
    result = json.loads(run("coeffs", "--steps", 10, "--safety", "0.01", "--json")[0])
    expected = np.array([line.split() for line in TEN_STEPS.split("\n") if line], float)
    np.testing.assert_allclose(np.array(result["coefficients"]), expected, rtol=1e-12, atol=0)
    assert result["steps"] == 10 and result["lower"] == 1e-3 and result["preset"] is None
    assert result["safety"] == 0.01 and result["cushion"] == 0.02


def test_numbers_have_the_fewest_digits():
    out, _ = run("coeffs", "--preset=original", "--steps=1")
    assert out.splitlines()[-1].split()[1:4] == ["3.4445", "-4.775", "2.0315"]
    out, _ = run("coeffs", "--list", "--json")
    numbers = re.findall(r"-?\d+\.\d+(?:e-?\d+)?", out)
    assert len(numbers) > 50 and all(float(n) == float(repr(float(n))) for n in numbers)
    assert all(len(n) <= len(repr(float(n))) for n in numbers)
    out, _ = run("coeffs", "--steps=9")
    table = json.loads(run("coeffs", "--steps=9", "--json")[0])["coefficients"]
    rows = [line.split()[1:4] for line in out.splitlines()[-9:]]
    assert [[float(x) for x in row] for row in rows] == table


def test_json_numbers_are_exact():
    result = json.loads(run("coeffs", "--json", "--lower=0.0012345678901234567")[0])
    assert result["lower"] == 0.0012345678901234567


def test_spellings_of_an_option():
    expected = run("coeffs", "--steps=7")[0]
    for spelling in (["--steps", 7], ["-n", 7], ["-n7"], ["--steps", "+7"]):
        assert run("coeffs", *spelling)[0] == expected


@pytest.mark.parametrize(
    "preset, low, high",
    [
        ("original", 0.471, 1.202),
        ("quintic", 0.475, 1.145),
        ("polar_express_5", 0.859, 1.141),
        ("cans", 0.884, 1.120),
        ("cubic", 0.119, 1.300),
    ],
)
def test_bands(preset, low, high):
    result = json.loads(run("coeffs", "--preset", preset, "--json")[0])
    sigma = np.logspace(-3, 0, 200001)
    for (a, b, c), band in zip(result["coefficients"], result["bands"]):
        sigma = a * sigma + b * sigma**3 + c * sigma**5
        np.testing.assert_allclose(band, [sigma.min(), sigma.max()], rtol=1e-6)
        assert band[0] <= sigma.min() * (1 + 1e-14) and band[1] >= sigma.max() * (1 - 1e-14)
    assert result["preset"] == preset and "safety" not in result
    assert result["band"] == result["bands"][-1]
    assert result["band"] == pytest.approx([low, high], abs=6e-4)


def test_cubic():
    result = json.loads(run("coeffs", "--cubic", "--steps", 3, "--json")[0])
    assert all(row[2] == 0 for row in result["coefficients"]) and "cushion" not in result
    low, high = 1e-3, 1.0
    alpha = (3 / (high**2 + low * high + low**2)) ** 0.5
    beta = 4 / (2 + low * high * (low + high) * alpha**3)
    s = 1.02
    assert result["coefficients"][0][:2] == pytest.approx(
        [1.5 * alpha * beta / s, -0.5 * alpha**3 * beta / s**3], rel=1e-12
    )


def test_table_has_every_digit():
    rows = [line.split() for line in run("coeffs")[0].splitlines() if re.match(r" +\d", line)]
    result = json.loads(run("coeffs", "--json")[0])
    assert [[float(x) for x in row[1:4]] for row in rows] == result["coefficients"]


def test_list():
    presets = json.loads(run("coeffs", "--list", "--json")[0])["presets"]
    text, _ = run("coeffs", "--list")
    assert [p["name"] for p in presets] == json.loads(run("info", "--json")[0])["presets"]
    for preset in presets:
        assert f"{preset['name']}, {preset['rows']} row" in text
        assert len(preset["coefficients"]) == preset["rows"]


def test_a_locale_with_a_decimal_comma():
    variables = environment(LC_ALL="de_DE.UTF-8", LANG="de_DE.UTF-8")
    assert run("coeffs", "--json", env=variables)[0] == run("coeffs", "--json")[0]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--steps=1"],
        ["--steps=64"],
        ["--steps=2", "--lower=1"],
        ["--lower=0"],
        ["--lower=1e-10", "--steps=20"],
        ["--preset=aol"],
        ["--preset=original", "--steps=64"],
        ["--cubic"],
    ],
)
def test_plot_is_well_formed(tmp_path, arguments):
    path = tmp_path / "plot.svg"
    assert run("coeffs", *arguments, "--plot", path)[0] == run("coeffs", *arguments)[0]
    text = path.read_text("utf-8")
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == space + "svg" and root.find(space + "title").text
    curves = root.findall(space + "polyline")
    assert len(curves) >= 3
    for curve in curves:
        numbers = [float(x) for x in re.split("[ ,]+", curve.get("points")) if x]
        assert len(numbers) % 2 == 0 and np.all(np.abs(numbers) < 2000)
    assert len(text) < 300_000 and "nan" not in text and "inf" not in text
    assert os.listdir(tmp_path) == ["plot.svg"]


def test_plot_that_cannot_be_written(tmp_path):
    for path in (tmp_path, tmp_path / "missing" / "plot.svg", "/dev/null"):
        out, error = run("coeffs", "--plot", path, code=1)
        assert out == "" and f"cannot write '{path}'" in error
    assert os.listdir(tmp_path) == []


# ---- mpi-plan ----


@pytest.mark.parametrize("ranks", ["0", "4,0", "2,x", "-1", "3,,4"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_mpi_plan_checks_ranks_before_it_prints(ranks, form):
    out, error = run("mpi-plan", f"--ranks={ranks}", *form, code=2)
    assert out == "" and f"--ranks '{ranks}'" in error

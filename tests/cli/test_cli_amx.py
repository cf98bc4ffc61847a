"""A process that the system refuses the tile registers of AMX: it works without them, says why in
`muonium info`, and gives the same bits."""

import ctypes
import json
import re
import struct
import subprocess

import numpy as np
import pytest

from muonium_command import MUONIUM, environment, run

ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, EPERM = 158, 0x1023, 1
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06  # of BPF: ld absolute word, jeq, ret
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]


# arch_prctl(ARCH_REQ_XCOMP_PERM, ...) fails with EPERM; all else is allowed.
PROGRAM = b"".join(struct.pack("HBBI", *step) for step in (
    (LOAD, 0, 0, 0),  # the number of the call
    (JUMP_EQUAL, 0, 3, ARCH_PRCTL),
    (LOAD, 0, 0, 16),  # its first argument
    (JUMP_EQUAL, 0, 1, ARCH_REQ_XCOMP_PERM),
    (RETURN, 0, 0, ERRNO | EPERM),
    (RETURN, 0, 0, ALLOW),
))


def refuse_tiles():
    """In the child, before the command: a seccomp filter."""
    libc = ctypes.CDLL(None, use_errno=True)
    what = Filter(len(PROGRAM) // 8, PROGRAM)
    zero = ctypes.c_ulong(0)
    if (libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero) != 0
            or libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER),
                          ctypes.byref(what), zero, zero) != 0):
        raise OSError(ctypes.get_errno(), "prctl")


@pytest.fixture(autouse=True)
def fixture_amx():
    cpu = json.loads(run("info", "--json", env=environment(MUONIUM_CPU=""))[0])["cpu"]
    if cpu["isa"] != "amx":
        pytest.skip("this CPU or build has no AMX")


def refused(*arguments, **variables):
    try:
        return subprocess.run([str(MUONIUM), *map(str, arguments)], env=environment(**variables),
                              preexec_fn=refuse_tiles, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60)
    except subprocess.SubprocessError:
        pytest.skip("this system has no seccomp filters")


def test_info_says_why():
    done = refused("info", MUONIUM_CPU="")
    assert done.returncode == 0, done.stderr
    why = "amx refused: a filter of system calls forbids the request (EPERM)"
    assert f"\nbecause      the best that this CPU has; {why}\n" in done.stdout
    cpu = json.loads(refused("info", "--json", MUONIUM_CPU="").stdout)["cpu"]
    assert cpu["isa"] != "amx" and cpu["reason"].endswith(why)
    assert "avx2" in cpu["features"] and all(re.fullmatch("[a-z0-9_.]+", f) for f in cpu["features"])
    assert not any(f.startswith("amx") for f in cpu["features"])


def test_amx_cannot_be_demanded():
    done = refused("info", MUONIUM_CPU="amx")
    assert done.returncode != 0
    assert "MUONIUM_CPU is" in done.stderr and "(amx refused: " in done.stderr


def test_results_are_the_same(tmp_path):
    source, with_tiles, without = (tmp_path / name for name in ("x.npy", "with.npy", "without.npy"))
    np.save(source, np.random.default_rng(3).standard_normal((96, 160)).astype(np.float32))
    precision = ("orthogonalize", "--precision", "fixed23", source)
    run(*precision, with_tiles, env=environment(MUONIUM_CPU="amx"))
    done = refused(*precision, without, MUONIUM_CPU="")
    assert done.returncode == 0, done.stderr
    assert with_tiles.read_bytes() == without.read_bytes()


def chosen(tmp_path, isa, side, *options):
    """The precision of the plan, and the result."""
    source, result = tmp_path / f"{side}.npy", tmp_path / "y.npy"
    if not source.exists():
        np.save(source, np.random.default_rng(side).standard_normal((side, side)).astype("f4"))
    output, _ = run("orthogonalize", source, result, "--json", *options,
                    env=environment(MUONIUM_CPU=isa))
    return json.loads(output)["plan"]["precision"], result.read_bytes()


def test_auto_takes_fixed23_for_large_matrices_alone(tmp_path):
    large, small = chosen(tmp_path, "amx", 512), chosen(tmp_path, "amx", 64)
    assert large == chosen(tmp_path, "avx512", 512, "--precision", "fixed23")
    assert small == chosen(tmp_path, "amx", 64, "--precision", "f32")
    assert chosen(tmp_path, "avx512", 512)[0] == "f32"
    assert chosen(tmp_path, "avx512", 512)[1] != large[1]

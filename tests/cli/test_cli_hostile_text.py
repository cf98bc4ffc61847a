"""Names, paths and arguments that speak to terminals: nothing of the kind comes out of the
command, as text, as JSON or in a message."""

import json
import os
import re
import subprocess

import numpy as np
import pytest

from muonium_command import MUONIUM
from safetensors_file import pack, write

# Escape, bell, newline, DEL, CSI as C1, bidirectional controls, separators.
HOSTILE = ["\x1b[2J", "\x07", "\n", "\r", "\t", "\x7f", "\x9b31m", "\x85", "\u061c", "\u200e", "\u200f",
           *map(chr, range(0x202a, 0x202f)), *map(chr, range(0x2066, 0x206a)), "\u2028", "\u2029"]
FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
NOT_UTF8 = [b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xc2", b"\xf4\x90\x80\x80"]
MARK = "é€😀"  # of what may be shown, nothing is lost


def call(directory, *arguments):
    """Run the command there; what it printed must be fit for a terminal."""
    done = subprocess.run([MUONIUM, *map(os.fsencode, arguments)], cwd=directory, timeout=60,
                          stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode in (0, 1, 2)
    for stream in (done.stdout, done.stderr):
        shown = stream.decode("utf-8")  # strictly
        assert not FORBIDDEN.search(shown), shown
    if b"--json" in arguments or "--json" in arguments:
        if done.stdout:
            json.loads(done.stdout)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def files(tmp_path):
    """A model, its gradients and an array whose names and metadata are hostile."""
    random = np.random.default_rng(1)
    names = [f"{MARK}{i}.{text}.w" for i, text in enumerate(HOSTILE)]
    tensors = {name: pack(random.normal(size=(4, 6)).astype("<f4")) for name in names}
    write(tmp_path / "model.safetensors", tensors, {"\x1b]0;title\x07": "\u202eeulav\n", "kind": "\x9b0m"})
    write(tmp_path / "grads.safetensors", tensors)
    return tmp_path, names


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_names_in_files(files, options):
    directory, names = files
    for arguments in [("route", "model.safetensors"), ("inspect", "model.safetensors"),
                      ("orthogonalize", "model.safetensors", "out.safetensors"),
                      ("step", "-p", "model.safetensors", "-g", "grads.safetensors", "-s", "state"),
                      ("inspect", "state")]:
        code, out, error = call(directory, *arguments, *options)
        assert code == 0 and error == "" and (MARK in out or arguments[0] == "step")
        lines = out.count("\n")
        if not options and arguments[0] == "inspect":
            assert lines < 3 * len(names)  # a newline in a name is no new line
        if options and arguments[1] == "model.safetensors":
            found = [t["name"] for t in json.loads(out)["tensors"]]
            assert found == names  # JSON gives them back as they are


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_paths(files, options):
    directory, _ = files
    for i, text in enumerate([*HOSTILE, *NOT_UTF8]):
        path = os.fsencode(text) + MARK.encode()
        (directory / "model.safetensors").rename(directory / os.fsdecode(path))
        for arguments in [("route", path), ("inspect", path), ("orthogonalize", path, path + b".safetensors"),
                          ("step", "-p", path, "-g", "grads.safetensors", "-s", b"state" + path)]:
            code, out, error = call(directory, *arguments, *options)
            assert code == (2 if arguments[0] == "orthogonalize" else 0)
            if options and arguments[0] == "inspect" and i < len(HOSTILE):
                assert json.loads(out)["file"].encode() == path
        (directory / os.fsdecode(path)).rename(directory / "model.safetensors")
        np.save(directory / "array.npy", np.eye(3, dtype="<f4"))
        code, out, _ = call(directory, "orthogonalize", "array.npy", path + b".npy", *options)
        assert code == 0 and MARK in out


def test_messages(files):
    directory, names = files
    for text in [*map(str.encode, HOSTILE), *NOT_UTF8]:
        text += MARK.encode()
        for arguments in [(text,), (b"--" + text,), ("help", text), ("info", text), ("info", b"--" + text),
                          ("route", text), ("inspect", text), ("route", "x", text),
                          ("orthogonalize", text, "out.npy"), ("orthogonalize", "array.npy", text + b".svg"),
                          ("step", "-p", text, "-g", text, "-s", text),
                          ("step", "-p", text, "-g", b"x" + text, "-s", b"y" + text),
                          ("step", "--recipe", text), ("step", "--lr", text), ("coeffs", "--steps", text),
                          ("coeffs", "--plot", text + b"/x.svg"), ("mpi-plan", "--model", text),
                          ("mpi-plan", "--ranks", text), ("demo", "--data", text), ("demo", "--resume", text),
                          ("completion", text), ("manual", text), ("bench", text)]:
            code, _, error = call(directory, *arguments)
            assert code != 0 and error.count("\n") <= 2
    # Messages about tensors and metadata.
    bad = {names[0]: pack(np.full((4, 6), np.nan, "<f4"))}
    for grads in [bad, {names[1]: pack(np.zeros((2, 2), "<f4"))}, {"\x1bother": pack(np.zeros(3, "<f4"))}]:
        write(directory / "grads.safetensors", grads)
        code, _, error = call(directory, "step", "-p", "model.safetensors", "-g", "grads.safetensors",
                              "-s", "state")
        assert code == 1 and error.count("\n") == 1
    (directory / "text.npy").write_bytes(b"\x93NUMPY\x01\x00\x40\x00" + b"{'\x1b[2J\xff': 1" + b" " * 60)
    assert call(directory, "orthogonalize", "text.npy", "out.npy")[0] == 1


def test_environment(tmp_path):
    for text in [*map(str.encode, HOSTILE), *NOT_UTF8]:
        for options in [(), ("--json",)]:
            done = subprocess.run([MUONIUM, "info", *options], capture_output=True, timeout=60,
                                  env={**os.environb, b"MUONIUM_CPU": text, b"MUONIUM_NUM_THREADS": text})
            assert not FORBIDDEN.search((done.stdout + done.stderr).decode("utf-8"))

"""muonium demo on tiny models: its output, its files, its errors, interruption."""

import csv
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import xml.etree.ElementTree as ElementTree

import pytest

from muonium_command import MUONIUM, run

SOURCE = pathlib.Path(__file__).resolve().parents[2]

HEADER = (SOURCE / "include/muonium.h").read_text("utf-8")

TINY = ["demo", "--size", "tiny", "--sample", "20"]

LABELS = {"adamw": "AdamW", "muonium": "Muon"}  # others are their recipe


def label(name):
    return LABELS.get(name, name)


def losses(path):
    """Everything but the times of a CSV file."""
    with open(path, newline="") as file:
        return [
            (row["optimizer"], int(row["step"]), row["train_loss"], row["validation_loss"])
            for row in csv.DictReader(file)
        ]


# ---- what it prints and writes ----


def test_table_samples_and_files(tmp_path):
    out, _ = run(*TINY, "--steps", 5, "--csv", "losses.csv", cwd=tmp_path)
    for part in [
        "29,664 weights", "5 steps of 4 x 32 characters", "final validation loss",
        "steps to AdamW's final loss", "seconds to AdamW's final loss", "of which the optimizer",
        "Written by the model trained with AdamW", "Written by the model trained with Muon",
        "demo.svg", "Kernels: ", "Muon: f32, direct form.",
    ]:
        assert part in out
    for line in out.splitlines()[-3:]:
        assert line.split("(")[0].strip() in HEADER
    assert sorted(os.listdir(tmp_path)) == ["demo.svg", "losses.csv"]
    rows = losses(tmp_path / "losses.csv")
    assert [row[:2] for row in rows] == [(o, s) for o in ("AdamW", "Muon") for s in range(6)]
    assert all((train == "") == (step == 0) for _, step, train, _ in rows)
    # Both start from the same weights and see the same first batch.
    assert rows[0][3] == rows[6][3] != "" and rows[1][2] == rows[7][2]
    assert rows[5][3] != rows[11][3]
    svg = ElementTree.parse(tmp_path / "demo.svg").getroot()
    assert svg.tag.endswith("svg")
    curves = [e for e in svg.iter() if e.tag.endswith("polyline")]
    assert len(curves) >= 4 and all("nan" not in e.get("points") for e in curves)


@pytest.mark.parametrize("optimizer, name", [("adamw", "AdamW"), ("muon", "Muon")])
def test_one_optimizer(tmp_path, optimizer, name):
    out, _ = run(*TINY, "--steps", 4, "--optimizer", optimizer, "--csv", "l.csv", cwd=tmp_path)
    assert f"trained with {name}" in out and "AdamW's final loss" not in out
    assert {row[0] for row in losses(tmp_path / "l.csv")} == {name}
    both = tmp_path / "both"
    both.mkdir()
    run(*TINY, "--steps", 4, "--csv", "l.csv", cwd=both)
    alone, together = losses(tmp_path / "l.csv"), losses(both / "l.csv")
    assert alone == [row for row in together if row[0] == name]


def test_comparing_recipes(tmp_path):
    """A run is the same whatever runs beside it; the fastest is named."""
    names = ["dion2", "adamw", "muonh", "muonium", "nanochat", "moonlight", "adamuon"]
    out, _ = run(*TINY, "--steps", 20, "--compare", ",".join(names), "--csv", "l.csv", cwd=tmp_path)
    together = losses(tmp_path / "l.csv")
    assert [o for o, step, *_ in together if step == 0] == [label(name) for name in names]
    assert "reached AdamW's final loss after" in out
    svg = (tmp_path / "demo.svg").read_text("utf-8")
    assert all(f">{label(name)}<" in svg for name in names)
    for name in ("dion2", "muonium"):
        run(*TINY, "--steps", 20, "--compare", name, "--csv", "l.csv", cwd=tmp_path)
        assert losses(tmp_path / "l.csv") == [row for row in together if row[0] == label(name)]


@pytest.mark.parametrize("precision", ["fixed23", "bf16"])
def test_precision(tmp_path, precision):
    out, _ = run(*TINY, "--steps", 3, "--json", "--precision", precision, cwd=tmp_path)
    adamw, muon = json.loads(out)["runs"]
    assert muon["precision"] == precision and "precision" not in adamw


def test_json(tmp_path):
    out, _ = run(*TINY, "--steps", 20, "--json", "--seed", 7, cwd=tmp_path)
    result = json.loads(out)
    assert result["steps"] == 20 and result["seed"] == 7 and result["width"] == 32
    adamw, muon = result["runs"]
    assert adamw["optimizer"] == "AdamW" and muon["optimizer"] == "Muon"
    assert adamw["steps_to_adamw_final_loss"] <= 20
    assert 0 < muon["optimizer_share"] < 1


def test_defaults_are_the_best_of_the_sweep(tmp_path):
    with open(SOURCE / "examples/gpt/sweep.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == "1"]
    swept = ",".join(sorted({row["optimizer"] for row in rows}))
    out, _ = run("demo", "--steps", 1, "--sample", 0, "--json", "--compare", swept, cwd=tmp_path)
    assert swept == "adamw,dion2,muonium,nanochat"
    for trained in json.loads(out)["runs"]:
        tried = [row for row in rows if label(row["optimizer"]) == trained["optimizer"]]
        best = min(tried, key=lambda row: float(row["final_validation_loss"]))
        assert (trained["lr"], trained["momentum"]) == (float(best["lr"]), float(best["momentum"]))


def test_learning(tmp_path):
    """Sixty steps of the tiny model learn something, with both."""
    out, _ = run(*TINY, "--steps", 60, "--json", cwd=tmp_path)
    for training in json.loads(out)["runs"]:
        assert training["final_validation_loss"] < 3.2  # 4.3 at the start


def test_threads_and_seed(tmp_path):
    arguments = [*TINY, "--steps", 6, "--csv", "l.csv"]
    results = []
    for more in (["--threads", 1], ["--threads", 3], ["--threads", 1, "--seed", 2]):
        run(*arguments, *more, cwd=tmp_path)
        results.append(losses(tmp_path / "l.csv"))
    assert results[0] == results[1] != results[2]


def test_any_bytes_are_a_text(tmp_path):
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 8)
    out, _ = run(*TINY[:3], "--steps", 3, "--data", "noise", cwd=tmp_path)
    assert "noise" in out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", out)
    (tmp_path / "one").write_bytes(b"a" * 100)
    run(*TINY, "--steps", 3, "--data", "one", cwd=tmp_path)


def test_learning_rates_and_sizes(tmp_path):
    out, _ = run(*TINY, "--steps", 2, "--lr", "0.001,0.5", cwd=tmp_path)
    assert "AdamW at learning rate 0.001, Muon at learning rate 0.5" in out
    out, _ = run("demo", "--size", "1x32x16", "--sample", 0, "--steps", 2, cwd=tmp_path)
    assert "1 layer, width 32, context 16" in out


# ---- errors ----


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["--data", "missing.txt"], 1, "cannot read 'missing.txt': No such file"),
        (["--data", "."], 1, "it is a directory"),
        (["--data", "empty.txt"], 1, "'empty.txt': the text has 0 bytes"),
        (["--data", "short.txt"], 1, "a context of 32 takes at least 66"),
        (["--csv", "none/x.csv"], 1, "cannot write 'none/x.csv': No such file or directory; choose another place with --csv"),
        (["--plot", "folder"], 1, "cannot write 'folder': it is a directory, not a regular file; choose another place with --plot"),
        (["--checkpoint", "none/c"], 1, "cannot write 'none/c'"),
        (["--size", "huge"], 2, "'huge' is not a size"),
        (["--size", "4x100"], 2, "the width is 100: use a multiple of 32"),
        (["--size", "0x32"], 2, "the number of layers is 0"),
        (["--size", "1000x1048576"], 1, "of memory, and"),
        (["--lr", "0.1"], 2, "'0.1' has no learning rate for Muon: give 2 numbers with commas between"),
        (["--compare", "muonium,sgd"], 2, "'sgd' is not an optimizer: use adamw, muonium, "),
        (["--compare", "timm,adamw,timm"], 2, "has timm twice"),
        (["--compare", "timm,"], 2, "'' is not an optimizer"),
        (["--compare", "timm", "--optimizer", "muon"], 2, "--optimizer has no effect with --compare"),
        (["--compare", "optax"], 1, "the recipe optax has no default"),
        (["--precision", "f8"], 2, "f8"),
        (["--resume", "x", "--compare", "timm"], 2, "--compare"),
        (["--lr", "0.1,0.1,0.1"], 2, "more numbers than"),
        (["--lr", "-1,1"], 2, "'-1' is not a learning rate"),
        (["--momentum", "0.9,1"], 2, "'1' is not a momentum"),
        (["--optimizer", "muon", "--lr", "fast"], 2, "'fast' is not a learning rate"),
        (["--optimizer", "sgd"], 2, "sgd"),
        (["--steps", "0"], 2, "--steps"),
        (["--resume", "missing"], 1, "missing"),
        (["--resume", "short.txt"], 1, "short.txt"),
        (["--resume", "x", "--steps", "3"], 2, "--steps"),
    ],
)
def test_refusals(tmp_path, arguments, code, message):
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "short.txt").write_bytes(b"x" * 65)
    (tmp_path / "folder").mkdir()
    tiny = [] if {"--size", "--resume"} & set(arguments) else ["--size", "tiny"]
    start = time.monotonic()
    out, error = run("demo", *tiny, *arguments, code=code, cwd=tmp_path)
    assert message in error
    assert out == "" and time.monotonic() - start < 30  # refused before any training
    assert sorted(os.listdir(tmp_path)) == ["empty.txt", "folder", "short.txt"]


def test_divergence_says_so(tmp_path):
    _, error = run(
        *TINY, "--steps", 50, "--optimizer", "adamw", "--lr", "1000", code=1, cwd=tmp_path
    )
    assert "AdamW diverged: in step" in error and "smaller --lr" in error


# ---- interruption ----


def interrupt(arguments, directory, by=signal.SIGINT, after_line="     "):
    """Start, send a signal once the first losses are printed, return (code, stderr)."""
    process = subprocess.Popen(
        [str(MUONIUM), *map(str, arguments)],
        cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    for line in process.stdout:
        if line.startswith(after_line) and "." in line:
            break
    process.send_signal(by)
    _, error = process.communicate(timeout=120)
    return process.returncode, error


@pytest.mark.parametrize("chosen", [["--optimizer", "both"], ["--compare", "dion2,muonh,timm"]])
def test_resuming_equals_not_stopping(tmp_path, chosen):
    arguments = [*TINY, "--steps", 400, *chosen, "--csv", "l.csv"]
    whole = tmp_path / "whole"
    whole.mkdir()
    expected, _ = run(*arguments, cwd=whole)
    code, error = interrupt(arguments, tmp_path)
    assert code == 1
    match = re.search(r"interrupted after step (\d+) of 400 and saved; go on with", error)
    assert match and 0 <= int(match[1]) < 400
    assert "muonium demo --resume 'demo.safetensors'" in error
    assert "l.csv" not in os.listdir(tmp_path)
    out, _ = run("demo", "--resume", "demo.safetensors", "--csv", "l.csv", "--sample", 20,
                 "--threads", 3, cwd=tmp_path)
    assert losses(tmp_path / "l.csv") == losses(whole / "l.csv")
    assert out.split("Written")[1] == expected.split("Written")[1]


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_save_too(tmp_path, by):
    code, error = interrupt([*TINY, "--steps", 4000], tmp_path, by)
    assert code == 1 and "and saved" in error
    assert os.listdir(tmp_path) == ["demo.safetensors"]


def test_a_checkpoint_that_cannot_be_written(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    process = subprocess.Popen(
        [str(MUONIUM), *TINY, "--steps", "4000", "--checkpoint", "place/c"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    process.stdout.readline()
    place.rmdir()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 1
    assert re.search(r"interrupted after step \d+, and not saved: .*place/", error)


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="the sanitizer reserves terabytes")
def test_memory_limit_of_the_shell(tmp_path):
    done = subprocess.run(
        ["sh", "-c", f"ulimit -v 300000; '{MUONIUM}' demo --size large"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 1 and done.stdout == "" and os.listdir(tmp_path) == []
    assert "takes about" in done.stderr and "choose a smaller size" in done.stderr


def test_resuming_with_another_text(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"the quick brown fox " * 50)
    code, error = interrupt([*TINY, "--steps", 4000, "--data", "text"], tmp_path)
    assert code == 1 and "saved" in error
    text.write_bytes(b"the quick brown dog " * 50)
    _, error = run("demo", "--resume", "demo.safetensors", code=1, cwd=tmp_path)
    assert "'text' is not the text that the training in 'demo.safetensors' started with" in error


def test_damaged_checkpoint(tmp_path):
    interrupt([*TINY, "--steps", 4000], tmp_path)
    path = tmp_path / "demo.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    run("demo", "--resume", path.name, code=1, cwd=tmp_path)
    path.write_bytes(whole.replace(b"layers=2", b"layers=3"))
    _, error = run("demo", "--resume", path.name, code=1, cwd=tmp_path)
    assert "layer.2" in error


# ---- terminals ----


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_progress_fits_the_terminal(tmp_path, columns):
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [str(MUONIUM), *TINY, "--steps", "40"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=follower,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(follower)
    seen = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        ready, _, _ = select.select([leader], [], [], 1)
        if ready:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            seen += piece
    os.close(leader)
    assert process.wait(timeout=60) == 0
    lines = [part.decode() for part in seen.split(b"\r\x1b[K")]
    assert len(lines) > 40 and all(len(line) < columns for line in lines)
    assert lines[-1] == ""  # it is gone at the end
    assert any("39/40" in line for line in lines)
    if columns >= 80:
        assert any("AdamW" in line and "left" in line and "val" in line for line in lines)
        assert any("#" in line for line in lines)

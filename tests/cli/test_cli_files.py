"""muonium step, route, inspect and orthogonalize on safetensors files. The command is that of
MUONIUM_BUILD_DIR, by default build/ of the source tree."""

import json
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess

import numpy as np
import pytest

from muonium_command import BUILD, MUONIUM, environment, run
from reference.optimizer import Optimizer as Reference
from reference.recipes import recipe
from safetensors_file import pack, pack_bf16, read, unpack, write

SEED = int(os.environ.get("MUONIUM_TEST_SEED", "20240607"))
METADATA = {"format": "pt", "naïve": "€ \" \\"}
RECIPES = ("muonium motif fp16 fp32 timm optax torch keller moonlight nanochat dion2 nordion2 "
           "adamuon muonh").split()


@pytest.fixture
def random():
    print(f"MUONIUM_TEST_SEED={SEED}")
    return np.random.default_rng(SEED)


SHAPES = {"h.1.w": (12, 20), "h.0.w": (16, 8), "ln.weight": (7,), "conv": (6, 4, 2, 2), "scale": ()}


def model(random):
    """Tensors of a model: trained ones, and those that only pass through."""
    tensors = {name: pack(random.normal(size=shape).astype("<f4")) for name, shape in SHAPES.items()}
    tensors["ids"] = pack(np.arange(5, dtype="<i8"))
    tensors["frozen"] = pack(random.normal(size=(4, 4)).astype("<f4"))
    tensors["fp8"] = ("F8_E4M3", (3,), b"\x01\x02\x03")
    return tensors


def gradients(random):
    return {name: random.normal(size=shape).astype("<f4") for name, shape in SHAPES.items()}


class Files:
    """The three files of a run in a directory."""

    def __init__(self, directory, tensors):
        self.params, self.grads, self.state, self.out = (
            directory / f"{name}.safetensors" for name in ("params", "grads", "state", "out"))
        write(self.params, tensors, METADATA)
        self.directory = directory

    def step(self, grads, *options, **keywords):
        write(self.grads, {name: pack(g) if isinstance(g, np.ndarray) else g
                           for name, g in grads.items()})
        return run("step", "--params", self.params, "--grads", self.grads, "--state", self.state,
                   *options, **keywords)

    def refuse(self, grads, message, *options, code=1):
        """An error that changes no file and leaves none behind."""
        write(self.grads, {name: pack(g) if isinstance(g, np.ndarray) else g
                           for name, g in grads.items()})
        before = {p: p.read_bytes() for p in self.directory.iterdir()}
        out, error = run("step", "--params", self.params, "--grads", self.grads, "--state",
                         self.state, *options, code=code)
        assert out == "" and message in error, error
        assert {p: p.read_bytes() for p in self.directory.iterdir()} == before


# ---- step ----


def test_step_follows_the_reference(tmp_path, random):
    tensors = model(random)
    files = Files(tmp_path, tensors)
    reference = Reference(recipe("muonium", lr=0.05))
    for name in SHAPES:
        reference.add(name, unpack(tensors[name]).astype(np.float64), "f64")
    for step in range(1, 5):
        grads = gradients(random)
        out, _ = files.step(grads, "--lr", "0.05", "--form", "quintic")
        assert f"step {step}: 3 tensors by Muon, 2 by AdamW, 3 unchanged" in out
        assert ("the new state" in out) == (step == 1)
        reference.step([grads[name].astype(np.float64) for name in SHAPES])
    found, metadata = read(files.params)
    paired = metadata.pop("muonium.state_crc32c")
    assert paired == read(files.state)[1]["muonium.header_crc32c"]
    assert list(found) == list(tensors) and metadata == METADATA
    for name in ("ids", "frozen", "fp8"):
        assert found[name] == tensors[name]
    for p, name in zip(reference.parameters, SHAPES):
        error = np.abs(unpack(found[name]) - p.data).max()
        assert error <= 2000 * np.finfo(np.float32).eps, name
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "grads.safetensors", "params.safetensors", "state.safetensors"]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe(tmp_path, random, name):
    files = Files(tmp_path, model(random))
    before, _ = read(files.params)
    for _ in range(2):
        files.step(gradients(random), "--recipe", name, "--lr=0.01", "--out", files.out)
        after, _ = read(files.out)
        assert all(after[key] != before[key] for key in SHAPES)
        assert all(after[key] == before[key] for key in before if key not in SHAPES)
        shutil.copy(files.out, files.params)
        before = after
    state, metadata = read(files.state)
    assert metadata["muonium.step"] == "2" and f"recipe={name} lr=0.01 " in metadata["muonium.group.0"]
    assert {key.rsplit(".", 1)[0] for key in state} == set(SHAPES)


def test_input_stays_with_out(tmp_path, random):
    files = Files(tmp_path, model(random))
    before = files.params.read_bytes()
    files.step(gradients(random), "--out", files.out)
    assert files.params.read_bytes() == before and files.out.exists()


def test_only_tensors_with_a_gradient_step(tmp_path, random):
    files = Files(tmp_path, model(random))
    grads = gradients(random)
    before, _ = read(files.params)
    files.step({"h.0.w": grads["h.0.w"]})
    after, _ = read(files.params)
    assert {name for name in before if before[name] != after[name]} == {"h.0.w"}
    # One more joins, one is left out: its state stays.
    out, _ = files.step({"h.1.w": grads["h.1.w"]}, "--json")
    report = json.loads(out)
    assert report["step"] == 2 and report["muon"] == 1 and report["unchanged"] == 7
    assert report["notes"] == ['state that starts anew: momentum of "h.1.w"']
    state, metadata = read(files.state)
    assert set(state) == {"h.0.w.momentum", "h.1.w.momentum"}
    assert metadata["muonium.parameter.h.0.w"].startswith("route=muon steps=1 ")
    assert metadata["muonium.parameter.h.1.w"].startswith("route=muon steps=1 ")


def test_half_precision(tmp_path, random):
    w = random.integers(-64, 64, (8, 12)).astype("<f4")
    files = Files(tmp_path, {"w": pack_bf16(w), "v": pack(w.astype("<f2")), "u": pack_bf16(w[0])})
    grad = random.integers(-8, 8, (8, 12)).astype("<f4")
    grads = {"w": pack_bf16(grad), "v": pack(grad), "u": pack(grad[0])}  # of its type, or F32
    files.step(grads, "--master=on", "--state-dtype=bf16", "--normuon=on")
    files.step(grads, "--master=on", "--state-dtype=bf16", "--normuon=on")
    params, _ = read(files.params)
    assert [params[name][0] for name in "wvu"] == ["BF16", "F16", "BF16"]
    state, _ = read(files.state)
    assert {name: t[0] for name, t in state.items()} == {
        "w.momentum": "BF16", "w.normuon": "F32", "w.master": "F32", "v.momentum": "BF16",
        "v.normuon": "F32", "v.master": "F32", "u.exp_avg": "F32", "u.exp_avg_sq": "F32",
        "u.master": "F32"}
    assert np.abs(unpack(state["w.master"]) - unpack(params["w"])).max() <= 64 * 2.0**-8
    files.refuse(grads, "holds state that no tensor", "--state-dtype=bf16")


def test_changed_options_are_noted(tmp_path, random):
    files = Files(tmp_path, model(random))
    files.step(gradients(random), "--recipe=fp32", "--routing=keller")
    out, _ = files.step(gradients(random), "--recipe=keller", "--lr=0.5")
    assert 'note: lr of the group of "h.1.w" was 0.0003 when its state was saved, is 0.5\n' in out
    assert 'note: momentum_form of the group of "h.1.w" was sum when its state was saved, is lerp\n' in out


def test_step_refusals(tmp_path, random):
    files = Files(tmp_path, model(random))
    grads = gradients(random)
    files.refuse({**grads, "other": grads["h.0.w"]}, "has no such tensor")
    files.refuse({**grads, "h.0.w": grads["h.0.w"].T.copy()},
                 "the gradient 'h.0.w' is 8 x 16, its parameter 16 x 8")
    files.refuse({"ids": np.arange(5, dtype="<i8")}, "'ids' is of type I64")
    files.refuse({"h.0.w": grads["h.0.w"].astype("<f2")}, "is of type F16, its parameter F32")
    files.refuse({}, "has no gradient for any tensor")
    bad = grads["h.0.w"].copy()
    bad[3, 2] = np.nan
    files.refuse({**grads, "h.0.w": bad}, "grad of h.0.w is nan at (3, 2)")
    files.refuse(grads, "lr is -1", "--lr=-1", code=2)
    files.refuse(grads, "lr is NaN", "--recipe=optax", code=2)
    files.step(grads)
    files.refuse({**grads, "h.0.w": bad}, "grad of h.0.w is nan at (3, 2)")
    files.refuse(grads, "was stepped by Muon and is now by AdamW", "--route=adam")
    files.refuse(grads, "one file", "--out", files.grads, code=2)
    files.refuse(grads, "one file", "--out", files.state, code=2)
    files.refuse(grads, "cannot open directory", "--out", tmp_path / "nowhere" / "x")
    whole = files.state.read_bytes()
    for damaged in (whole[:-1], whole[:-5] + b"\x7f" + whole[-4:], b"", whole + b"x"):
        files.state.write_bytes(damaged)
        files.refuse(grads, "state.safetensors")
    files.state.unlink()
    files.state.mkdir()
    write(files.grads, {name: pack(g) for name, g in grads.items()})
    _, error = run("step", "-p", files.params, "-g", files.grads, "-s", files.state, code=1)
    assert "a directory" in error


def test_state_of_another_model(tmp_path, random):
    files = Files(tmp_path, model(random))
    files.step(gradients(random))
    write(files.params, {"w": pack(np.ones((8, 8), "<f4"))})
    files.refuse({"w": np.ones((8, 8), "<f4")}, "has nothing for any parameter")
    write(files.params, {"h.0.w": pack(np.ones((16, 8), "<f4"))})
    files.refuse({"h.0.w": np.ones((16, 8), "<f4")}, "holds state that no tensor of")


@pytest.mark.parametrize("missing", ["params", "grads", "state"])
def test_step_needs_three_files(tmp_path, missing):
    paths = {name: tmp_path / name for name in ("params", "grads", "state") if name != missing}
    arguments = [a for name, path in paths.items() for a in (f"--{name}", path)]
    _, error = run("step", *arguments, code=2)
    assert f"--{missing} is missing" in error


def test_nothing_is_written_when_the_disk_is_full(tmp_path, random):
    """A limit on the size of files stands for the disk: state is larger than parameters."""
    files = Files(tmp_path, model(random))
    files.step(gradients(random))
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    blocks = (len(before[files.params]) + 1023) // 1024
    assert len(before[files.state]) > blocks * 1024
    done = subprocess.run(
        ["bash", "-c", f'trap "" XFSZ; ulimit -f {blocks}; exec "$0" "$@"', str(MUONIUM), "step",
         "-p", str(files.params), "-g", str(files.grads), "-s", str(files.state)],
        capture_output=True)
    assert done.returncode == 1 and b"File too large" in done.stderr, done.stderr
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_interruption_between_the_files(tmp_path, random):
    """Parameters are replaced first; the state of a step that got no further is beside."""
    files = Files(tmp_path, model(random))
    first, second = gradients(random), gradients(random)
    files.step(first)
    state_before = files.state.read_bytes()
    files.step(second)
    params_after, state_after = files.params.read_bytes(), files.state.read_bytes()
    files.state.write_bytes(state_before)
    files.refuse(second, "was last stepped with another state than")

    left = tmp_path / "state.safetensors.tmp-4711-0"
    left.write_bytes(state_after[:-1])  # not what is looked for
    files.refuse(second, "was last stepped with another state than")
    left.write_bytes(state_after)
    for path in (files.state, None):  # once more as if it had been the first step of all
        write(files.grads, {name: pack(g) for name, g in second.items()})
        _, error = run("step", "-p", files.params, "-g", files.grads, "-s", files.state, code=1)
        assert "the last step was interrupted" in error and "which has now been done too" in error
        assert files.params.read_bytes() == params_after
        assert files.state.read_bytes() == state_after and not left.exists()
        if path is not None:
            files.state.rename(left)
    out, _ = files.step(gradients(random))
    assert out.startswith("step 3:")


@pytest.mark.parametrize("renaming", [1, 2])
def test_killed_before_a_renaming(tmp_path, random, renaming):
    """The real thing: before the first nothing has changed, between both the next call mends."""
    files = Files(tmp_path, model(random))
    before = files.params.read_bytes()
    write(files.grads, {name: pack(g) for name, g in gradients(random).items()})
    arguments = ["step", "-p", files.params, "-g", files.grads, "-s", files.state]
    fault = f"inject=renameat,renameat2:signal=KILL:when={renaming}"
    done = subprocess.run(
        ["strace", "-f", "-qq", "-o", os.devnull, "-e", fault, str(MUONIUM), *map(str, arguments)],
        capture_output=True, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
    if b"ptrace" in done.stderr.lower():
        pytest.skip("no program may be traced here")
    assert done.returncode in (-9, 137), done
    assert (files.params.read_bytes() == before) is (renaming == 1)
    assert not files.state.exists()
    if renaming == 2:
        _, error = run(*arguments, code=1)
        assert "the last step was interrupted" in error and files.state.exists()
    out, _ = run(*arguments)
    assert out.startswith(f"step {renaming}:")


def test_other_state_on_purpose(tmp_path, random):
    files = Files(tmp_path, model(random))
    files.step(gradients(random))
    old = files.state.read_bytes()
    files.step(gradients(random))
    files.state.write_bytes(old)
    out, _ = files.step(gradients(random), "--unpaired")
    assert out.startswith("step 2:")
    out, _ = files.step(gradients(random))  # and now they belong together
    assert out.startswith("step 3:")
    files.state.unlink()
    out, _ = files.step(gradients(random))
    assert "note: the parameters were last stepped with a state that is not here" in out
    assert "step 1:" in out


# ---- inspect ----


def test_inspect_a_model(tmp_path, random):
    path = tmp_path / "model.safetensors"
    tensors = model(random)
    write(path, tensors, {**METADATA, "evil\x1b[31m": "\x07"})
    out, _ = run("inspect", path)
    assert "8 tensors" in out and "no state of a Muonium optimizer" in out and "\x1b" not in out
    assert "12 x 20" in out and "scalar" in out and "F8_E4M3" in out and "metadata format: pt" in out
    report = json.loads(run("inspect", path, "--json")[0])
    assert report["state"] is None and report["metadata"]["naïve"] == METADATA["naïve"]
    assert [(t["name"], t["dtype"], tuple(t["shape"]), t["bytes"]) for t in report["tensors"]] == [
        (name, dtype, shape, len(data)) for name, (dtype, shape, data) in tensors.items()]
    raw = path.read_bytes()
    for t in report["tensors"]:
        assert raw[t["offset"] : t["offset"] + t["bytes"]] == tensors[t["name"]][2]


def test_inspect_a_state(tmp_path, random):
    files = Files(tmp_path, model(random))
    files.step(gradients(random), "--recipe=timm")
    out, _ = run("inspect", files.state)
    assert "state of a Muonium optimizer after 1 step: 3 parameters by Muon, 2 by AdamW" in out
    assert "checksums of the header and all 7 tensors are right" in out
    assert "group 0: recipe=timm lr=0.02 " in out and "muonium.crc32c" not in out
    report = json.loads(run("inspect", files.state, "--json")[0])
    assert report["state"] == {
        "format": 1, "version": report["metadata"]["muonium.version"], "step": 1, "muon": 3,
        "adam": 2, "groups": 1, "verified": True}
    raw = files.state.read_bytes()
    for position in (9, 100, len(raw) - 1):
        files.state.write_bytes(raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :])
        out, error = run("inspect", files.state, code=1)
        assert out == "" and "state.safetensors" in error


def test_inspect_refusals(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"no safetensors file")
    assert "x" in run("inspect", path, code=1)[1]
    assert "No such file" in run("inspect", tmp_path / "none", code=1)[1]
    run("inspect", tmp_path, code=1)
    run("inspect", code=2)


# ---- route ----


def test_route(tmp_path, random):
    path = tmp_path / "model.safetensors"
    tensors = {**model(random), "experts": pack(random.normal(size=(5, 8, 16)).astype("<f4")),
               "lm_head.weight": pack(np.zeros((40, 8), "<f2")), "wide": pack(np.zeros((2, 9), "<f8")),
               "none": pack(np.zeros((0, 3), "<f4"))}
    write(path, tensors, METADATA)
    report = json.loads(run("route", path, "--experts=on", "--json")[0])
    by_name = {t["name"]: t for t in report["tensors"]}
    assert {name: (t["route"], t["reason"]) for name, t in by_name.items()} == {
        "h.1.w": ("muon", "ok"), "h.0.w": ("muon", "ok"), "conv": ("muon", "ok"),
        "experts": ("muon", "ok"), "frozen": ("muon", "ok"),
        "ln.weight": ("adam", "name_pattern:ln"), "scale": ("adam", "insufficient_dims"),
        "lm_head.weight": ("adam", "name_pattern:lm_head"), "ids": (None, "type"),
        "fp8": (None, "type"), "wide": (None, "type"), "none": (None, "no elements")}
    assert by_name["experts"]["matrices"] == 5 and by_name["conv"]["cols"] == 16
    assert by_name["h.1.w"]["state_bytes"] == 4 * 240
    assert by_name["lm_head.weight"]["state_bytes"] == 8 * 320
    total = report["total"]
    trained = [t for t in report["tensors"] if t["route"]]
    assert (total["muon"], total["adam"], total["untrained"]) == (5, 3, 4)
    assert total["matrices"] == 9 and total["flops"] == sum(t["flops"] for t in trained)
    assert total["state_bytes"] == sum(t["state_bytes"] for t in trained)

    out, _ = run("route", path)
    assert "5 tensors by Muon, 3 by AdamW, 4 not trained" in out
    assert len(out.splitlines()) == 1 + len(tensors) + 4 and report["warnings"] == []
    out, _ = run("route", path, env=environment(MUONIUM_NUM_THREADS="6"))
    assert out.splitlines()[-1].startswith("on 6 threads: ")
    total = json.loads(run("route", path, "--json", env=environment(MUONIUM_NUM_THREADS="1"))[0])["total"]
    assert (total["threads"], total["teams"], total["team_width"]) == (1, 1, 1)
    assert total["scratch_bytes"] > 0
    assert json.loads(run("route", path, "--route=adam", "--json")[0])["total"]["muon"] == 0
    assert "(in f32:" not in out and total["f32_state_bytes"] == total["state_bytes"]
    for options, muon, adam in ((("--state-dtype=bf16",), 2, 0), (("--state-dtype=int8",), 3, 0),
                                (("--state-dtype=int8", "--adam-state-dtype=int8"), 3, 3)):
        small = json.loads(run("route", path, "--json", *options)[0])
        saved = {"muon": muon, "adam": adam}
        elements = {t["name"]: t["state_bytes"] // (4 if t["route"] == "muon" else 8)
                    for t in trained}
        for t in small["tensors"]:
            if t["route"]:
                n, less = elements[t["name"]], saved[t["route"]]
                scales = 4 * -(-n // 2048) if less == 3 else 0
                wide = n * (4 if t["route"] == "muon" else 8)
                assert t["state_bytes"] == wide - less * n + scales
        assert small["total"]["f32_state_bytes"] == total["state_bytes"]
        assert "(in f32: " in run("route", path, *options)[0]
    run("route", path, "--recipe=optax")  # which has no learning rate, and needs none here
    assert "recipe" in run("route", path, "--recipe=otpax", code=2)[1]
    assert "momentum is 1" in run("route", path, "--momentum=1", code=2)[1]
    run("route", tmp_path / "none", code=1)
    write(path, {})
    assert json.loads(run("route", path, "--json")[0])["tensors"] == []


def test_route_of_names(tmp_path):
    """Patterns, rules, fused matrices and what looks wrong."""
    path = tmp_path / "model.safetensors"
    shapes = {"tok_emb.weight": (4096, 32), "codes": (4096, 32), "h.0.attn.qkv.weight": (48, 16),
              "h.0.mlp.experts.w1": (4, 16, 8)}
    write(path, {name: pack(np.zeros(shape, "<f4")) for name, shape in shapes.items()})

    def routed(*options):
        report = json.loads(run("route", path, "--json", *options)[0])
        found = {t["name"]: t["reason"] for t in report["tensors"]}
        return [found[name] for name in shapes], report

    reasons, report = routed()
    assert reasons == ["name_pattern:*emb", "ok", "ok", "ok"]
    qkv, experts = (next(t for t in report["tensors"] if t["name"] == name)
                    for name in ("h.0.attn.qkv.weight", "h.0.mlp.experts.w1"))
    assert (qkv["fused"], qkv["split"], qkv["matrices"]) == ("QKV", [16, 16, 16], 1)
    assert experts["matrices"] == 4
    assert [w.split(" (")[0].split(":")[0] for w in report["warnings"]] == [
        "codes", "h.0.attn.qkv.weight"]
    reasons, report = routed("--pattern=codes", "--pattern", "w?", "--split")
    assert reasons == ["name_pattern:*emb", "name_pattern:codes", "ok", "name_pattern:w?"]
    assert report["total"]["matrices"] == 3 and report["warnings"] == []
    assert routed("--pattern=codes", "--only-patterns")[0] == ["ok", "name_pattern:codes", "ok", "ok"]
    assert routed("--routing=torch")[0] == ["ok", "ok", "ok", "not_2d"]
    assert routed("--recipe=timm")[0] == ["ok", "ok", "ok", "ok"]
    out, _ = run("route", path)
    assert "QKV, rows 16+16+16" in out and "\nwarning: codes (4096 x 32) looks like" in out
    assert "one of muonium, timm" in run("route", path, "--routing=other", code=2)[1]
    assert "more than 32" in run("route", path, *33 * ["--pattern=a"], code=2)[1]
    out, _ = run("mpi-plan", path, "--ranks=1,2", "--json", "--split")
    plans = json.loads(out)
    assert plans["model"] == str(path) and plans["plans"][0]["elements"] == 2 * 4096 * 32 + 768 + 512
    assert "--model has no effect" in run("mpi-plan", path, "--model=gpt2", code=2)[1]
    assert "No such file" in run("mpi-plan", tmp_path / "none", code=1)[1]


def test_step_tells_of_routes_that_look_wrong(tmp_path):
    files = Files(tmp_path, {"attn.qkv.weight": pack(np.zeros((48, 16), "<f4"))})
    grads = {"attn.qkv.weight": np.ones((48, 16), "<f4")}
    assert "note: warning: attn.qkv.weight: QKV in one tensor" in files.step(grads)[0]
    files.state.unlink()
    assert "warning" not in files.step(grads, "--split")[0]


def test_route_fits_long_names(tmp_path):
    path, name = tmp_path / "model.safetensors", "model.layers.0." + 60 * "x"
    write(path, {name: pack(np.zeros((4, 8), "<f4")), "w": pack(np.zeros((8, 4), "<f4"))})
    lines = run("route", path)[0].splitlines()
    assert {line.index(column) for line, column in
            zip(lines, ["shape", "4 x 8", "8 x 4"])} == {len(name) + 1}


def sanitized():
    cache = (BUILD / "CMakeCache.txt").read_text()
    return re.search(r"^MUONIUM_SANITIZE:\w+=.", cache, re.M) is not None


@pytest.mark.skipif(sanitized(), reason="sanitizers reserve terabytes of addresses")
def test_route_needs_no_memory_for_state(tmp_path):
    """A model of 5 GB, whose file has holes for data, in 256 MB of addresses."""
    path, side = tmp_path / "model.safetensors", 16384
    header = {f"h.{i}.w": {"dtype": "F32", "shape": [side, side],
                           "data_offsets": [4 * i * side**2, 4 * (i + 1) * side**2]}
              for i in range(5)}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 20 * side**2)

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))

    out, _ = run("route", path, "--recipe=keller", "--json", preexec_fn=limit)
    total = json.loads(out)["total"]
    assert total["muon"] == 5 and total["state_bytes"] == 20 * side**2


# ---- orthogonalize ----


def test_orthogonalize_tensors(tmp_path, random):
    source, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    tensors = {**model(random), "half": pack_bf16(random.integers(-9, 9, (6, 8)).astype("<f4")),
               "double": pack(random.normal(size=(9, 5)))}
    write(source, tensors, METADATA)
    report = json.loads(run("orthogonalize", source, target, "--steps=8", "--json")[0])
    found, metadata = read(target)
    assert list(found) == list(tensors) and metadata == METADATA
    assert report["matrices"] == 4 + 24 + 1 and report["copied"] == 4
    assert [t["name"] for t in report["tensors"]] == [
        name for name, (dtype, shape, _) in tensors.items() if len(shape) > 1]
    for t in report["tensors"]:
        assert len(t["certificates"]) == np.prod(t["shape"][:-2], dtype=int)
    for name, (dtype, shape, data) in tensors.items():
        if len(shape) < 2:
            assert found[name] == tensors[name]
            continue
        x, y = unpack(tensors[name]).astype(float), unpack(found[name]).astype(float)
        u, s, v = np.linalg.svd(x, full_matrices=False)
        sound = (s > 0.02 * s[..., :1]).all(-1)  # where eight steps are enough
        tolerance = 0.02 if dtype == "BF16" else 1e-3
        assert np.abs(u @ v - y)[sound].max(initial=0) < tolerance, name
    # In place, and as text.
    shutil.copy(source, target)
    out, _ = run("orthogonalize", target, target, "--steps=8")
    assert read(target)[0] == found and "29 matrices orthogonalised, 4 tensors copied" in out
    assert len(os.listdir(tmp_path)) == 2


def test_orthogonalize_tensors_refusals(tmp_path, random):
    source, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    bad = random.normal(size=(4, 6)).astype("<f4")
    bad[2, 3] = np.inf
    write(source, {"good": pack(np.eye(4, dtype="<f4")), "bad": pack(bad)})
    target.write_bytes(b"old")
    out, error = run("orthogonalize", source, target, code=1)
    assert out == "" and "'bad'" in error and target.read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2
    run("orthogonalize", source, target, "--nonfinite=skip")
    assert read(target)[0]["bad"] == read(source)[0]["bad"]
    assert "lower" in run("orthogonalize", source, target, "--lower=2", code=2)[1]
    run("orthogonalize", tmp_path / "none.safetensors", target, code=1)
    pathlib.Path(source).write_bytes(b"no safetensors")
    run("orthogonalize", source, target, code=1)

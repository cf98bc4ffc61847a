"""The benchmark measures what it says and leaves nothing behind. What it finds is not judged."""

import json

from muonium_command import run


def test_checkpoint(tmp_path):
    out, _ = run("bench", "--checkpoint", "--megabytes", 1, "--directory", tmp_path, "--json")
    found = json.loads(out)
    assert found["state_bytes"] == 1024 * 4096 * 4  # the least that there is
    for name in ("save", "load", "load_not_cached"):
        pair = found[name]
        assert pair["gbps"] > 0 and pair["plain_gbps"] > 0
        share = 100 * pair["gbps"] / pair["plain_gbps"]
        assert abs(pair["percent_of_plain"] - share) <= 1e-9 * share
    assert list(tmp_path.iterdir()) == []
    out, _ = run("bench", "--checkpoint", "--megabytes", 1, "--directory", tmp_path)
    assert "a state of 17 MB" in out and "write and fsync" in out


def test_checkpoint_refusals(tmp_path):
    _, error = run("bench", "--checkpoint", "--directory", tmp_path / "none", "--megabytes", 1, code=1)
    assert "none" in error and "No such file" in error
    _, error = run("bench", "--checkpoint", "--gpt2", code=2)
    assert "--gpt2 has no effect with --checkpoint" in error
    _, error = run("bench", "--shapes", "64x", code=2)
    assert "'64x' cannot be read" in error


def test_shapes():
    out, _ = run("bench", "--shapes", "16x32,2x8x8", "--seconds", 0, "--json")
    results = json.loads(out)["results"]
    shapes = {(r["batch"], r["m"], r["n"]) for r in results if r["name"] == "orthogonalize"}
    assert shapes == {(1, 16, 32), (2, 8, 8)}


def test_tiles():
    out, _ = run("bench", "--tiles", "--seconds", 0, "--threads", 1, "--json")
    rows = json.loads(out)["results"]
    assert {row["name"] for row in rows} == {"tile, packed", "tile, left plain", "tile, plain"}
    assert {row["m"] for row in rows} == {32, 64, 96, 128, 256, 512}
    assert all(0 < row["percent_of_peak"] for row in rows)
    _, error = run("bench", "--tiles", "--shapes", "8x8", code=2)
    assert "--tiles" in error and "--shapes" in error

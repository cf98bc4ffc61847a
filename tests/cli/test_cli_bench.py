"""The benchmark measures what it says and leaves nothing behind. What it finds is not judged."""

import json
import os
import pty
import subprocess

import pytest

from muonium_command import MUONIUM, environment, run


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


def test_precisions():
    shapes = ("--shapes", "40x48", "--seconds", 0, "--json")
    info = json.loads(run("info", "--json")[0])["cpu"]
    found = json.loads(run("bench", "--precisions", *shapes)[0])
    assert found["peak_gflops"] > 0 and found["int8_peak_gops"] > 0
    assert ("bf16_peak_gflops" in found) == (info["bf16_kernel"] != info["kernel"])
    rows = {row["name"].strip(): row for row in found["results"]}
    products = ("gram", "symmul", "apply")
    fixed = {f"{product} {digits}" for product in products for digits in ("fixed23", "fixed15")}
    bf16 = {f"{product} bf16" for product in products}
    assert fixed | {"bf16", "fixed23", "fixed15"} <= set(rows)
    assert bf16 & set(rows) == (bf16 if "bf16_peak_gflops" in found else set())
    assert {name for name, row in rows.items() if row.get("percent_of_int8_peak", 0) > 0} == fixed
    ratio = 6 * found["peak_gflops"] / found["int8_peak_gops"]  # six products of digits
    row = rows["gram fixed23"]
    assert abs(row["percent_of_int8_peak"] - ratio * row["percent_of_peak"]) <= 1e-6 * ratio * 100


def test_precisions_by_default():
    """Only where the CPU has int8 dot products."""
    out, _ = run("bench", "--shapes", "40x48", "--seconds", 0, "--json",
                 env=environment(MUONIUM_CPU="portable"))
    assert not any("fixed" in row["name"] for row in json.loads(out)["results"])


def test_tiles():
    out, _ = run("bench", "--tiles", "--seconds", 0, "--threads", 1, "--json")
    rows = json.loads(out)["results"]
    assert {row["name"] for row in rows} == {"tile, packed", "tile, A unpacked", "tile, unpacked"}
    assert {row["m"] for row in rows} == {32, 64, 96, 128, 256, 512}
    assert all(0 < row["percent_of_peak"] for row in rows)
    _, error = run("bench", "--tiles", "--shapes", "8x8", code=2)
    assert "--tiles" in error and "--shapes" in error


PEER = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void openblas_set_num_threads(int threads)
{
    FILE *out = fopen(getenv("PEER_LOG"), "a");
    fprintf(out, "threads %d\n", threads);
    fclose(out);
}

/* As slow as PEER_GFLOPS says. */
static void take_time(double flops)
{
    double seconds = flops / 1e9 / atof(getenv("PEER_GFLOPS"));
    struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
}

void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    take_time(2.0 * m * n * k);
}

void cblas_ssyrk(int order, int uplo, int trans, int n, int k, float alpha, const float *a,
                 int lda, float beta, float *c, int ldc)
{
    take_time(1.0 * n * n * k);
}
"""


@pytest.fixture(name="peer", scope="module")
def fixture_peer(tmp_path_factory):
    """A CBLAS library that tells how many threads it is to use, and takes its time."""
    directory = tmp_path_factory.mktemp("peer")
    (directory / "peer.c").write_text(PEER)
    subprocess.run(["cc", "-shared", "-fPIC", directory / "peer.c", "-o", directory / "peer.so"],
                   check=True)

    def variables(gflops):
        return environment(MUONIUM_BENCH_BLAS=str(directory / "peer.so"),
                           PEER_LOG=str(directory / "log"), PEER_GFLOPS=str(gflops))
    return directory, variables


def test_threads_limit_the_peer_too(peer):
    directory, variables = peer
    for threads in (1, 2):
        out, _ = run("bench", "--shapes", "8x8", "--seconds", 0, "--threads", threads, "--json",
                     env=variables(100))
        assert json.loads(out)["peer_threads_set"] is True
        assert (directory / "log").read_text().split()[-1] == str(threads)


def test_a_hopeless_peer_is_tried_and_left_out(peer):
    _, variables = peer
    out, _ = run("bench", "--shapes", "64x64,512x512", "--seconds", 0, "--json",
                 env=variables(0.1))
    found = json.loads(out)
    names = {"cblas_ssyrk", "cblas_sgemm", "plain cblas"}
    theirs = {(row["name"], row["m"]) for row in found["results"] if "cblas" in row["name"]}
    assert theirs == {(name, 64) for name in names}
    left_out = {(row["name"], row["m"]): row["seconds_expected"] for row in found["left_out"]}
    assert set(left_out) == {(name, 512) for name in names}
    assert found["peer_gflops"] <= 0.1 and left_out["plain cblas", 512] > 40
    assert {row["peer"] for row in found["comparisons"] if row["m"] == 512} <= {
        "the best form of the quintics"}
    out, _ = run("bench", "--products", "--shapes", "512x512", "--seconds", 0, env=variables(0.1))
    assert "left out: cblas_sgemm, 512 x 512: 3 s a run" in out


def test_progress_is_shown_on_a_terminal():
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run([str(MUONIUM), "bench", "--shapes=16x16", "--seconds=0"],
                              stdout=subprocess.PIPE, stderr=theirs, check=True, timeout=120)
        said = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "measuring products of 16 x 16; about" in said
    assert "measuring the orthogonalisation of 16 x 16; about" in said
    assert said.endswith("\r\x1b[K")
    assert b"measuring" not in done.stdout and b"--quick" in done.stdout


def test_products_alone():
    out, _ = run("bench", "--products", "--shapes", "16x16", "--seconds", 0, "--json")
    names = {row["name"] for row in json.loads(out)["results"]}
    assert {"gram", "symmul", "apply"} <= names and "orthogonalize" not in names


def test_quick():
    out, _ = run("bench", "--quick", "--seconds", 0)
    assert out.startswith("quick") and "512 x 512" in out and "2048 x" not in out

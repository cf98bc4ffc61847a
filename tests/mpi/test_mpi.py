"""libmuonium_mpi under Open MPI and MPICH, on up to 7 ranks, and what survivors of a killed
or stopped rank see."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

PROGRAMS = Path(os.environ["MUONIUM_BUILD_DIR"]) / "tests" / "mpi"
IMPLEMENTATIONS = ["openmpi", "mpich"]
ENVIRONMENT = dict(
    os.environ,
    MUONIUM_NUM_THREADS="1",
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_btl_vader_single_copy_mechanism="none",  # containers forbid it, loudly
    OMPI_MCA_hwloc_base_binding_policy="none",
)

# What lets the other ranks live when one dies.
SURVIVE = {
    "openmpi": ["--enable-recovery", "--mca", "orte_abort_on_non_zero_status", "0"],
    "mpich": ["-disable-auto-cleanup"],
}


def launcher(implementation, ranks, survive=False):
    program = shutil.which(f"mpirun.{implementation}")
    assert program, f"mpirun.{implementation} is missing"
    flags = ["--oversubscribe"] if implementation == "openmpi" else []
    return [program, *flags, *(SURVIVE[implementation] if survive else []), "-n", str(ranks)]


def run_cases(implementation, ranks, path, *cases):
    command = [*launcher(implementation, ranks), str(PROGRAMS / f"cases-{implementation}"), str(path)]
    done = subprocess.run([*command, *cases], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=200)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_cases(implementation, ranks, tmp_path):
    run_cases(implementation, ranks, tmp_path / "state.safetensors",
              "equal", "bytes", "nonfinite", "overflow", "mismatch", "misuse", "split", "in_out", "columns",
              "rates", "held", "creation", "bucket")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_another_number_of_ranks_resumes(implementation, tmp_path):
    path = tmp_path / "state.safetensors"
    run_cases(implementation, 3, path, "save")
    for ranks in (1, 4):
        run_cases(implementation, ranks, path, "resume3")
    run_cases(implementation, 2, path, "save", "resume2")
    run_cases(implementation, 3, tmp_path / "unsound.safetensors", "unsound")
    for ranks in (1, 3):
        run_cases(implementation, ranks, tmp_path / "converted.safetensors", "convert")
    for shape in ("wide", "tall", "int8"):
        run_cases(implementation, 3, path, f"save-{shape}")
        run_cases(implementation, 2, path, f"resume-{shape}3")


def read_lines(process, seconds, verdicts):
    """What the job prints until `seconds` have passed, it has ended, or so many ranks have
    given their verdict."""
    lines, end = [], time.monotonic() + seconds
    os.set_blocking(process.stdout.fileno(), False)
    while time.monotonic() < end:
        line = process.stdout.readline()
        if line:
            lines.append(line.strip())
        elif process.poll() is not None:
            break
        else:
            time.sleep(0.02)
        if sum(bool(re.match("survivor|LOST|late", line)) for line in lines) == verdicts:
            break
    return lines


CREATION = ["connect", "create", "compare", "prepare"]
PHASES = [*CREATION, "gradients", "verdict", "columns", "stepping", "updates", "save", "load"]

# MPICH's launcher ends the job when a rank dies, whatever it is told; stopped ones it leaves.
FALLS = [("openmpi", "KILL", phase) for phase in PHASES]
FALLS += [("openmpi", "STOP", phase) for phase in ("connect", "gradients", "updates")]
FALLS += [("mpich", "STOP", phase) for phase in PHASES]
FALLS += [(implementation, "NONE", phase) for implementation in IMPLEMENTATIONS
          for phase in ("late", "absent")]


@pytest.mark.parametrize("implementation, name, phase", FALLS)
def test_survivors_name_the_missing_rank(implementation, name, phase, tmp_path):
    command = [*launcher(implementation, 3, survive=True), str(PROGRAMS / f"victim-{implementation}"),
               phase, name, "1", str(tmp_path / "state.safetensors")]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        lines = read_lines(process, 60, 3 if name == "NONE" else 2)
    finally:
        for line in lines:
            fallen = re.match(r"victim (\d+)", line)
            if fallen and name == "STOP":
                os.kill(int(fallen[1]), signal.SIGKILL)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    survivors = [line for line in lines if line.startswith("survivor")]
    assert len(survivors) == 2, "\n".join(lines)
    assert name != "NONE" or any(line.startswith("late") for line in lines), "\n".join(lines)

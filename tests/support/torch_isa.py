"""PyTorch on machines that show AMX without letting it be used.

Some hypervisors show AMX in CPUID but mask the leaf that describes its tiles (0x1D). oneDNN,
which PyTorch multiplies bf16 matrices with, then dies of SIGILL. Call prepare() before torch
is imported: where a probe in a child process shows the crash it keeps oneDNN from using AMX.
"""
import os
import pathlib
import subprocess
import sys
import warnings

LIMITS = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "DNNL_MAX_CPU_ISA": "AVX512_CORE"}
PROBE = [sys.executable, "-c",
         "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"]
CPUINFO = pathlib.Path("/proc/cpuinfo")


def _shows_amx(cpuinfo):
    try:
        return "amx_tile" in cpuinfo.read_text()
    except OSError:
        return True  # unknown: let the probe tell


def prepare(probe=PROBE, cpuinfo=CPUINFO, environment=os.environ):
    """Limit oneDNN in `environment`, with a warning, if the probe is killed by a signal. What
    the user has set stays. True if it was limited."""
    if any(name in environment for name in LIMITS) or not _shows_amx(cpuinfo):
        return False
    done = subprocess.run(probe, env=environment, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    if done.returncode >= 0:  # it may have failed otherwise, as without torch
        return False
    environment.update(LIMITS)
    warnings.warn(f"PyTorch dies of signal {-done.returncode} in a bf16 product on this machine: "
                  f"running with {' '.join(f'{k}={v}' for k, v in LIMITS.items())}")
    return True

"""muonium.torch.Muon in two and three processes (gloo): FSDP2 and other DTensors against one
process, checkpoints that change the number of processes, DistributedDataParallel, and errors.
"""
import os
import pathlib
import subprocess
import sys

import pytest
import torch

WORKER = pathlib.Path(__file__).with_name("sharded_worker.py")


def run(ranks, checks, path):
    """Every process runs the checks of sharded_worker.py in this order."""
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    started = [subprocess.Popen([sys.executable, str(WORKER), str(rank), str(ranks), str(path),
                                 ",".join(checks)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, env=environment)
               for rank in range(ranks)]
    try:
        said = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    for process, text in zip(started, said):
        assert process.returncode == 0, text[-4000:]
        assert [line.split()[1] for line in text.splitlines() if line.startswith("passed")] == checks


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch has no gloo")
def test_processes(tmp_path):
    run(2, ["fsdp2", "options", "state_dict", "ddp", "zero", "save", "only_adam",
            "devices"], tmp_path)
    run(3, ["load", "fsdp2", "options", "errors"], tmp_path)
    run(4, ["hsdp"], tmp_path)

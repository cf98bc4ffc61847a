"""Copies between a device and the host that run beside computation."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch


class HostCopies:
    """For parameters that are in host memory already: copies on a thread, in order."""

    pinned = False

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="muonium-copies")
        self.copying = self.waited = 0.0  # seconds

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Any:
        """Begin a copy; a ticket for wait()."""
        return self.thread.submit(self._copy, target, source)

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        begin = time.perf_counter()
        with torch.no_grad():
            target.copy_(source)
        self.copying += time.perf_counter() - begin

    def wait(self, ticket: Any) -> None:
        """Return when a copy is complete."""
        begin = time.perf_counter()
        ticket.result()
        self.waited += time.perf_counter() - begin

    def finish(self) -> None:
        """Before other work reads what was copied: nothing, since every copy was waited for."""


class StreamCopies:
    """For an accelerator: copies on a stream of their own, to and from pinned memory."""

    pinned = True

    def __init__(self, device: torch.device) -> None:
        self.module = getattr(torch, device.type)
        self.stream = self.module.Stream(device)
        self.copying = self.waited = 0.0
        self.timed: list = []

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Any:
        self.stream.wait_stream(self.module.current_stream())
        begin, end = (self.module.Event(enable_timing=True) for _ in range(2))
        with self.module.stream(self.stream), torch.no_grad():
            begin.record(self.stream)
            target.copy_(source, non_blocking=True)
            end.record(self.stream)
        for t in (target, source):
            if not t.is_cpu:
                t.record_stream(self.stream)
        self.timed.append((begin, end))
        return end

    def wait(self, ticket: Any) -> None:
        begin = time.perf_counter()
        ticket.synchronize()
        self.waited += time.perf_counter() - begin

    def finish(self) -> None:
        self.module.current_stream().wait_stream(self.stream)
        self.copying += sum(begin.elapsed_time(end) for begin, end in self.timed) / 1e3
        self.timed.clear()


def copies_for(device: torch.device) -> Any:
    """The way to copy between a device and the host."""
    if device.type == "cpu":
        return HostCopies()
    if not hasattr(getattr(torch, device.type, None), "Stream"):
        raise ValueError(f"parameters are on {device}, whose backend has no streams: use CUDA, XPU or "
                         "the CPU")
    return StreamCopies(device)

"""Copies between a device and the host that run beside computation."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Union

import torch

TO_HOST, BACK = 0, 1  # what a copy is of: a gradient, or a stepped parameter


class HostCopies:
    """For parameters that are in host memory already: copies on a thread, in order."""

    pinned = False

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="muonium-copies")
        self.copying, self.waited = [0.0, 0.0], [0.0, 0.0]  # seconds, of TO_HOST and of BACK

    def copy(self, target: torch.Tensor, source: torch.Tensor, way: int) -> Any:
        """Begin a copy; a ticket for wait()."""
        return self.thread.submit(self._copy, target, source, way)

    def _copy(self, target: torch.Tensor, source: torch.Tensor, way: int) -> None:
        begin = time.perf_counter()
        with torch.no_grad():
            target.copy_(source)
        self.copying[way] += time.perf_counter() - begin

    def wait(self, ticket: Any, way: int) -> None:
        """Return when a copy is complete."""
        begin = time.perf_counter()
        ticket.result()
        self.waited[way] += time.perf_counter() - begin

    def finish(self) -> None:
        """Before other work reads what was copied: nothing, since every copy was waited for."""


class StreamCopies:
    """For an accelerator: copies on a stream of their own, to and from pinned memory."""

    pinned = True

    def __init__(self, device: torch.device) -> None:
        self.device, self.module = device, getattr(torch, device.type)
        self.stream = self.module.Stream(device)
        self.copying, self.waited = [0.0, 0.0], [0.0, 0.0]
        self.timed: list = []

    def copy(self, target: torch.Tensor, source: torch.Tensor, way: int) -> Any:
        self.stream.wait_stream(self.module.current_stream(self.device))
        begin, end = (self.module.Event(enable_timing=True) for _ in range(2))
        with self.module.stream(self.stream), torch.no_grad():
            begin.record(self.stream)
            target.copy_(source, non_blocking=True)
            end.record(self.stream)
        for t in (target, source):
            if not t.is_cpu:
                t.record_stream(self.stream)
        self.timed.append((begin, end, way))
        return end

    def wait(self, ticket: Any, way: int) -> None:
        begin = time.perf_counter()
        ticket.synchronize()
        self.waited[way] += time.perf_counter() - begin

    def finish(self) -> None:
        self.module.current_stream(self.device).wait_stream(self.stream)
        for begin, end, way in self.timed:
            end.synchronize()
            self.copying[way] += begin.elapsed_time(end) / 1e3
        self.timed.clear()


class Copies:
    """The ways to copy between the host and each device that has parameters."""

    def __init__(self) -> None:
        self.by_device: Dict[torch.device, Union[HostCopies, StreamCopies]] = {}

    def of(self, device: torch.device) -> Any:
        """The copies of a device."""
        if device not in self.by_device:
            self.by_device[device] = _copies_for(device)
        return self.by_device[device]

    def finish(self) -> None:
        """Let the work that follows on each device see what was copied."""
        for copies in self.by_device.values():
            copies.finish()

    def seconds(self) -> Dict[str, float]:
        """Spent by copies and by waiting for them, in each direction and in both."""
        found = {f"{what}_{spent}seconds": sum(getattr(copies, source)[way]
                                               for copies in self.by_device.values())
                 for way, what in ((TO_HOST, "gradient_copy"), (BACK, "return_copy"))
                 for spent, source in (("", "copying"), ("waited_", "waited"))}
        for spent in ("", "waited_"):
            found[f"copy_{spent}seconds"] = (found[f"gradient_copy_{spent}seconds"]
                                             + found[f"return_copy_{spent}seconds"])
        return found


def _copies_for(device: torch.device) -> Any:
    if device.type == "cpu":
        return HostCopies()
    if not hasattr(getattr(torch, device.type, None), "Stream"):
        raise ValueError(f"parameters are on {device}, whose backend has no streams: use CUDA, XPU or "
                         "the CPU")
    return StreamCopies(device)

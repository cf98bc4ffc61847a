"""OffloadMuon's copies on streams, with stand-ins for torch.cuda whose streams are slow threads. The
memory is the host's: what is tested is the order of copies, computation and waiting. No GPU has run
this.
"""
import contextlib
import queue
import threading
import time

import pytest
import torch

import beside  # noqa: F401, finds the package

from muonium.torch import Muon, OffloadMuon, _copies

torch.set_num_threads(1)
OPTIONS = {"lr": 5e-3, "recipe": "muonium", "weight_decay": 0.1}
DELAY = 0.01  # seconds, of every copy


class Stream:
    """Work in order on a thread of its own."""

    def __init__(self, device=None):
        self.device, self.work, self.waited_for = device, queue.SimpleQueue(), []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            self.work.get()()

    def wait_stream(self, other):
        self.waited_for.append(other)
        reached = threading.Event()
        other.work.put(reached.set)
        self.work.put(reached.wait)


class Event:
    def __init__(self, enable_timing=False):
        self.reached, self.at = threading.Event(), None

    def record(self, stream):
        def reach():
            self.at = time.perf_counter()
            self.reached.set()
        stream.work.put(reach)

    def synchronize(self):
        assert self.reached.wait(60)

    def elapsed_time(self, end):
        assert self.reached.is_set() and end.reached.is_set()
        return 1e3 * (end.at - self.at)


class Devices:
    """What OffloadMuon uses of torch.cuda."""

    Stream, Event = Stream, Event

    def __init__(self):
        self.computing, self.copying, self.current = {}, {}, None

    def current_stream(self, device=None):
        """Of a device; without one, of a device that none of the parameters is on."""
        return self.computing.setdefault(str(device), Stream(device))

    @contextlib.contextmanager
    def stream(self, stream):
        self.current, self.copying[str(stream.device)] = stream, stream
        yield
        self.current = None


@pytest.fixture
def devices(monkeypatch):
    found, copy = Devices(), torch.Tensor.copy_

    def delayed(target, source, non_blocking=False):
        if not non_blocking:
            return copy(target, source)
        # Autograd has computed the gradient already; a copy must not be seen before it is made.
        target, source = target.detach(), source.detach()
        found.current.work.put(lambda: (time.sleep(DELAY), copy(target, source)))
        return target

    for name in ("Stream", "Event", "current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(found, name))
    monkeypatch.setattr(torch.Tensor, "copy_", delayed)
    monkeypatch.setattr(_copies.StreamCopies, "pinned", False)
    return found


class First(torch.nn.Parameter):
    """A parameter that says it is on a device. Its memory is the host's."""

    device = property(lambda self: torch.device("cuda", 0))


class Second(torch.nn.Parameter):
    device = property(lambda self: torch.device("cuda", 1))


def net(*kinds, dtype=torch.float32):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.GELU(), torch.nn.Linear(40, 24))
    model.to(dtype)
    for layer, kind in zip((model[0], model[2]), kinds):
        layer.weight, layer.bias = kind(layer.weight.detach()), kind(layer.bias.detach())
    return model


def train(model, optimizer, steps=5):
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(48, 24, generator=torch.Generator().manual_seed(step))
        x = x.to(next(model.parameters()).dtype)
        for part in x.chunk(2):  # the second pass adds to gradients that are being copied
            (model(part) - part.flip(1)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("bucket_bytes", [1, 1 << 30])
@pytest.mark.parametrize("kinds", [(First, First), (First, Second)])
def test_slow_copies(devices, kinds, bucket_bytes):
    model, plain = net(*kinds), net()
    optimizer = OffloadMuon(model.named_parameters(), bucket_bytes=bucket_bytes, max_norm=1e9, **OPTIONS)
    train(model, optimizer)
    train(plain, Muon(plain, **OPTIONS))
    for p, q in zip(model.parameters(), plain.parameters()):
        assert torch.equal(p.detach(), q.detach())
    names = {str(kind.device.fget(None)) for kind in kinds}
    assert set(devices.copying) == set(devices.computing) == names
    for name in names:  # a copy waits for what computed its source, and what follows for the copy
        copying, computing = devices.copying[name], devices.computing[name]
        assert set(copying.waited_for) == {computing} and set(computing.waited_for) == {copying}
    counters = optimizer.counters()
    assert counters["gradient_copy_seconds"] >= 2 * 5 * 4 * DELAY  # of two passes, 5 steps
    assert counters["return_copy_seconds"] >= 5 * 4 * DELAY


def test_a_changed_option_waits_for_copies(devices):
    model, plain = net(First, Second), net()
    optimizers = [OffloadMuon(model.named_parameters(), offload_gradients=True, **OPTIONS),
                  Muon(plain, **OPTIONS)]
    for host, optimizer in zip((model, plain), optimizers):
        x = torch.randn(48, 24, generator=torch.Generator().manual_seed(0))
        (host(x) - x.flip(1)).square().mean().backward()
        optimizer.param_groups[0]["betas"] = (0.8, 0.9)
        optimizer.step()
    for p, q in zip(model.parameters(), plain.parameters()):
        assert torch.equal(p.detach(), q.detach())

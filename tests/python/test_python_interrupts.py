"""Ctrl-C at any moment: the state of muonium.torch.Muon always belongs to its parameters.

The lines of the package and of torch's base class that a call runs through are interrupted one
by one; then a child process is sent SIGINT at random moments of its steps. MUONIUM_TEST_SEED
repeats a run.

The library is that of MUONIUM_BUILD_DIR, by default build/ of the source tree.
"""
import copy
import functools
import os
import random
import select
import signal
import subprocess
import sys
import time

import pytest

import torch_isa

torch_isa.prepare()
torch = pytest.importorskip("torch")

from package import ROOT, SEED

import muonium.torch  # noqa: E402
from muonium.torch import Muon  # noqa: E402

torch.set_num_threads(1)
TRACED = (str(ROOT / "python" / "muonium"), sys.modules["torch.optim.optimizer"].__file__)


class Interrupted:
    """Raises KeyboardInterrupt at the n-th line, or return of a function, of the traced files."""

    def __init__(self, at):
        self.at, self.passed = at, 0

    def __enter__(self):
        sys.settrace(self.trace)

    def __exit__(self, *_):
        sys.settrace(None)

    def trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(TRACED) or "__del__" in frame.f_code.co_name:
            return None
        if event in ("line", "return"):
            if self.passed == self.at:
                self.passed += 1
                sys.settrace(None)
                raise KeyboardInterrupt
            self.passed += 1
        return self.trace


LAST, OTHERS = 40, 110  # lines that are interrupted: the last, and others at random


def interrupted(begin, act):
    """Yield (number of the line, what begin() made) after each interrupt of act()."""
    print(f"MUONIUM_TEST_SEED={SEED}")
    count = Interrupted(-1)
    run = begin()
    with count:
        act(run)
    early = range(max(0, count.passed - LAST))
    early = random.Random(SEED).sample(early, min(len(early), OTHERS))
    for at in sorted(early) + list(range(max(0, count.passed - LAST), count.passed)):
        run = begin()
        try:
            with Interrupted(at):
                act(run)
        except KeyboardInterrupt:
            pass  # but for interrupts of what destroys an object, which Python ignores
        yield at, run


# ---- a small model, the same each time ----

SHAPES = {"w": (6, 8), "norm": (5,), "late": (4, 4), "conv": (4, 3, 2, 2)}


class Run:
    """An optimizer and its parameters; `count` is how many steps it should have taken."""

    def __init__(self):
        generator = torch.Generator().manual_seed(7)
        self.params = {name: torch.nn.Parameter(torch.randn(shape, generator=generator))
                       for name, shape in SHAPES.items()}
        self.params["late"].requires_grad_(False)
        self.optimizer = Muon(self.params.items(), lr=0.02, recipe="muonium")

    def grads(self, count, late=False):
        for i, (name, p) in enumerate(self.params.items()):
            generator = torch.Generator().manual_seed(100 * count + i)
            p.grad = torch.randn(p.shape, generator=generator) if name != "late" or late else None

    def step(self, count, late=False):
        self.grads(count, late)
        self.optimizer.step()

    def snapshot(self):
        """Parameters, groups and state, as a checkpoint would have them."""
        return copy.deepcopy(([p.detach() for p in self.params.values()],
                              self.optimizer.state_dict()))


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def resumed(snapshot):
    """A new process that starts from a checkpoint."""
    run = Run()
    with torch.no_grad():
        for p, value in zip(run.params.values(), snapshot[0]):
            p.copy_(value)
    run.optimizer.load_state_dict(snapshot[1])
    return run


def plain_step(run):
    run.step(3)


def thawing_step(run):
    run.step(3, late=True)


def changed_step(run):
    run.optimizer.param_groups[0]["nesterov"] = False
    run.step(3)


def restrided_step(run):
    conv = run.params["conv"]
    conv.data = conv.data.to(memory_format=torch.channels_last)
    run.step(3)


@functools.lru_cache(maxsize=None)
def another_state():
    other = Run()
    for count in range(7):
        other.step(count)
    state = copy.deepcopy(other.optimizer.state_dict())
    state["param_groups"][0]["lr"] = 0.5
    return state


def loading(run):
    run.optimizer.load_state_dict(another_state())


def looking(run):
    run.step(3)
    run.optimizer.state_dict()


def adding(run):
    run.params["more"] = torch.nn.Parameter(torch.ones(3, 3))
    run.optimizer.add_param_group({"params": [("more", run.params["more"])]})


@pytest.mark.parametrize("steps, looked", [(0, False), (2, True)])
@pytest.mark.parametrize("act", [plain_step, thawing_step, changed_step, restrided_step, loading,
                                 looking])
def test_every_line(act, steps, looked):
    def begin():
        run = Run()
        for count in range(steps):
            run.step(count)
        if looked:  # else there is state that Python has not seen yet
            run.optimizer.state_dict()
        return run

    old = begin().snapshot()
    finished = begin()
    act(finished)
    new = finished.snapshot()
    outcomes = []
    for at, run in interrupted(begin, act):
        found = run.snapshot()
        # Options and strides are the user's; parameters and state must go together.
        before = same(found[0], old[0]) and same(found[1]["state"], old[1]["state"])
        after = same(found[0], new[0]) and same(found[1]["state"], new[1]["state"])
        assert before or after, f"{act.__name__}, line {at}"
        if act is loading:  # and the groups with the state
            assert found[1]["param_groups"] == (old if before else new)[1]["param_groups"]
        outcomes.append(after)
        if at % 7 == 0:  # it can go on, as what is loaded from its state
            other = resumed(found)
            for one in (run, other):
                one.step(4, late=True)
                one.step(5)
            assert same(run.snapshot()[1]["state"], other.snapshot()[1]["state"])
            assert same(run.snapshot()[0], other.snapshot()[0])
    assert len(outcomes) > 20 and (set(outcomes) == {False, True} or act is loading)


def test_every_line_of_adding_a_group():
    def begin():
        run = Run()
        run.step(0)
        return run

    new = begin()
    adding(new)
    new.step(1)
    tried = 0
    for at, run in interrupted(begin, adding):
        if len(run.optimizer.param_groups) == 1:
            adding(run)
        run.step(1)
        assert same(run.snapshot(), new.snapshot()), f"line {at}"
        tried += 1
    assert tried > 20


# ---- signals ----


def child():
    """Steps until interrupted; then looks whether state and parameters are those of one of the
    steps of an undisturbed run, and says so. Ends with its input."""
    reference, expected = Run(), []
    for count in range(60):
        reference.step(count)
        expected.append(reference.snapshot())
    run, done = Run(), 0
    while True:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            print("ready", flush=True)
            while True:
                run.grads(done)
                run.optimizer.step()
                done += 1
                run.optimizer.state_dict()
                if done == len(expected):
                    run, done = Run(), 0
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        found = run.snapshot()
        steps = [int(entry["step"]) for entry in found[1]["state"].values()]
        if not steps:
            good = same(found, Run().snapshot())
        else:
            good = same(found, expected[steps[0] - 1])
        done = steps[0] if steps else 0
        if done == len(expected):
            run, done = Run(), 0
        print("same" if good else f"different after {steps}", flush=True)
        if not sys.stdin.readline():
            return


def test_signals():
    print(f"MUONIUM_TEST_SEED={SEED}")
    draw = random.Random(SEED)
    process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True,
                               env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    try:
        for _ in range(150):
            assert process.stdout.readline() == "ready\n"
            time.sleep(draw.uniform(0.001, 0.006))
            for _ in range(20):  # Python drops what arrives while it destroys an object
                process.send_signal(signal.SIGINT)
                if select.select([process.stdout], [], [], 0.5)[0]:
                    break
            assert process.stdout.readline() == "same\n"
            process.stdin.write("go\n")
            process.stdin.flush()
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    child()

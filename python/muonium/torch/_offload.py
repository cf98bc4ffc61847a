"""OffloadMuon: parameters stay on their device, the optimizer and its state on the host."""

import math
import weakref
from typing import Any, Dict, List, Optional

import torch

from .._arrays import F32, Array, dense_strides
from .._handle import HalfCopies
from .._library import NonFiniteError
from .._options import CHOICES, make_options
from ._copies import BACK, TO_HOST, Copies
from ._groups import given_of
from ._link import Link
from ._muon import Muon, Params
from ._tensors import DTYPES, is_dtensor

_BUCKET = 4 << 20
_SUMMED = 1 << 18  # elements of a gradient that are squared and summed in double at a time


class OffloadMuon(Muon):
    """Muon on the host for parameters that stay where they are: CUDA, XPU or the CPU.

        optimizer = muonium.torch.OffloadMuon(model.named_parameters(), lr=3e-4, recipe="muonium")
        for batch in data:
            optimizer.zero_grad()
            loss(model, batch).backward()       # gradients go to the host meanwhile
            optimizer.step()                    # parameters come back as they are stepped

    The host has an f32 master of every parameter and the state. Each gradient is copied to the host
    as soon as backward has it, in its own type. The step reads it there, and writes the master and
    the outgoing copy in one pass. Parameters go back in buckets while the next ones are stepped.
    Device memory holds neither masters nor momentum.

    max_norm           clips all gradients together to this norm, without a pass over the device
    bucket_bytes       of parameters that are stepped together; larger ones are stepped alone
    offload_gradients  drop each gradient on the device once it is copied; not with accumulation
                       over several backward passes

    All else is as in Muon; state_dtype="bf16" halves the momentum. torch.amp.GradScaler works: the
    step divides by `grad_scale` and does nothing if `found_inf` is set. A change of a parameter by
    other hands, as by load_state_dict of the model, is taken up into its master by the next step;
    but a write in place to p.data cannot be seen, and is overwritten.
    """

    _step_supports_amp_scaling = True

    def __init__(self, params: Params, *args: Any, max_norm: Optional[float] = None,
                 bucket_bytes: int = _BUCKET, offload_gradients: bool = False, **options: Any):
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"max_norm is {max_norm}: use a number above 0, or None")
        if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
            raise RuntimeError(f"OffloadMuon needs PyTorch 2.1 or newer, and this is "
                               f"{torch.__version__}: gradients have no hook before")
        self.max_norm, self.bucket_bytes = max_norm, bucket_bytes
        self.offload_gradients = offload_gradients
        super().__init__(params, *args, **options)

    def _make_link(self, groups: List[Dict[str, Any]], state: Any = None) -> Any:
        made = OffloadLink(groups, state, self)
        if isinstance(self._link, OffloadLink):
            made.inherit(self._link)
        return made

    def step(self, closure: Any = None) -> Any:
        """Step all parameters that have a gradient; the loss, if a closure computes it."""
        if self.offload_gradients and hasattr(self, "found_inf"):
            raise RuntimeError("GradScaler looks for overflow in the gradients on the device, which "
                               "offload_gradients=True drops: use offload_gradients=False, or train "
                               "in bfloat16 without a scaler")
        if float(getattr(self, "found_inf", None) or 0) > 0:
            self._link.forget()
            return None
        return super().step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, those that are only on the host included."""
        super().zero_grad(set_to_none)
        if self.offload_gradients and self._link is not None:
            self._link.forget()

    def _is_empty_step(self) -> bool:
        return super()._is_empty_step() and not self._link.arrived

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "max_norm": self.max_norm,
                "bucket_bytes": self.bucket_bytes, "offload_gradients": self.offload_gradients}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        for name in ("max_norm", "bucket_bytes", "offload_gradients"):
            if name in state:
                setattr(self, name, state[name])
        super().__setstate__(state)


class OffloadLink(Link):
    """A Link whose parameters are masters on the host."""

    def __init__(self, groups, state, optimizer):
        self.optimizer = weakref.ref(optimizer)
        self.copies = Copies()
        self.masters: List[torch.Tensor] = []
        self.incoming: List[torch.Tensor] = []   # gradients
        self.outgoing: List[torch.Tensor] = []   # parameters; the master itself if that is f32
        self.versions: List[tuple] = []          # of parameters, when they were last equal
        self.numbers: Dict[int, int] = {}        # of parameters, by id
        self.arrived: Dict[int, tuple] = {}      # copy of a gradient, its source and version
        self.filled: Dict[int, bool] = {}        # whether incoming may have other than zeros
        self.hooks: List[Any] = []
        self.taken = 0
        self.recounted = 0  # parameters that the library counted as skipped, once too often
        try:
            super().__init__(groups, state)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def takes(group):
        return True

    def close(self):
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def inherit(self, other):
        """Take the place of another link, with the gradients that have arrived there."""
        other.close()
        for number, arrived in other.arrived.items():
            own = self.numbers.get(id(other.params[number]))
            if own is not None:
                self.wait(arrived[0], other.params[number], TO_HOST)
                self.incoming[own].copy_(other.incoming[number])
                self.arrived[own], self.filled[own] = arrived, True

    def add_group(self, group, state=None):
        for p in group["params"]:
            if is_dtensor(p):
                raise TypeError("OffloadMuon takes plain parameters, and one is a DTensor: use Muon "
                                "with CPUOffloadPolicy of FSDP2")
            if p.dtype not in DTYPES:
                raise TypeError(f"a parameter is {p.dtype}: use float32, bfloat16 or float16")
        pointer, named = self.add_group_only(group)
        for p, name in named:
            entry = state.get(p) if state else None
            if p.requires_grad or entry:
                self.add(p, name, group, pointer, entry)
            else:
                self.frozen.append((p, name, group, pointer))
        self.whole = True

    def host(self, p, dtype):
        return torch.empty(p.shape, dtype=dtype, pin_memory=self.copies.of(p.device).pinned)

    def copy(self, target, source, p, way):
        return self.copies.of(p.device).copy(target, source, way)

    def wait(self, ticket, p, way):
        self.copies.of(p.device).wait(ticket, way)

    def add(self, p, name, group, pointer, entry=None):
        master, incoming = self.host(p, torch.float32), self.host(p, p.dtype).zero_()
        outgoing = master if p.dtype == torch.float32 else self.host(p, p.dtype)
        kept = entry.get("master") if entry else None
        master.copy_(p.detach() if kept is None else kept)
        if outgoing is not master:
            outgoing.copy_(master)
        half = None if outgoing is master else HalfCopies(DTYPES[p.dtype], incoming.data_ptr(),
                                                          outgoing.data_ptr())
        dense = dense_strides(p.shape)
        array = Array(master.data_ptr(), F32, tuple(p.shape), dense, master)
        number = self.handle.add(name, array, given_of(group), pointer, dense, half)
        for entries, value in ((self.params, p), (self.names, name), (self.shapes, p.shape),
                               (self.sizes, p.numel()), (self.masters, master),
                               (self.incoming, incoming), (self.outgoing, outgoing),
                               (self.versions, version_of(p))):
            entries.append(value)
        self.numbers[id(p)] = number
        link = weakref.ref(self)

        def hook(parameter):
            found = link()
            if found is not None:
                found.receive(number, parameter)

        if p.requires_grad:
            self.hooks.append(p.register_post_accumulate_grad_hook(hook))
        if entry:
            self.set_state(number, {key: value for key, value in entry.items()
                                    if key != "master"})
            self.stepped = True

    # ---- the step ----

    def receive(self, number, p):
        """Begin to copy a gradient that backward has finished."""
        drop = self.optimizer().offload_gradients
        if drop and number in self.arrived:
            raise RuntimeError(f"{self.names[number]!r} got a second gradient before the step: use "
                               "offload_gradients=False to accumulate over backward passes")
        self.arrived.pop(number, None)  # the order of arrival is that of the step
        g = p.grad
        if g.is_sparse:
            raise TypeError(f"the gradient of {self.names[number]!r} is sparse: make embeddings "
                            "with sparse=False")
        ticket = self.copy(self.incoming[number], g.detach(), p, TO_HOST)
        self.arrived[number] = (ticket, None if drop else g, g._version)
        self.filled[number] = True
        if drop:
            p.grad = None

    def forget(self):
        """Drop the gradients of a step that is not taken."""
        for number, (ticket, _, _) in self.arrived.items():
            self.wait(ticket, self.params[number], TO_HOST)
        self.arrived.clear()

    def take_up(self, number):
        """Follow a change of a parameter by other hands. Where only its memory or its version is
        new, as after to() and back, the master keeps the digits that the parameter lacks."""
        p, sent = self.params[number], self.outgoing[number]
        found = p.detach().to("cpu")
        if not torch.equal(found, sent):
            self.masters[number].copy_(found)
            if sent is not self.masters[number]:
                sent.copy_(found)
        self.versions[number] = version_of(p)

    def step(self):
        optimizer = self.optimizer()
        self.thaw()
        for number, p in enumerate(self.params):
            _, g, version = self.arrived.get(number, (None, None, 0))
            if p.grad is None:
                if g is not None:  # dropped by zero_grad after backward
                    self.wait(self.arrived.pop(number)[0], p, TO_HOST)
            elif g is not p.grad or version != p.grad._version:  # clipped, or set by hand
                self.receive(number, p)
            if version_of(p) != self.versions[number]:
                self.take_up(number)
        order = list(self.arrived)
        for number in order:
            self.wait(self.arrived[number][0], self.params[number], TO_HOST)
        self.scale(optimizer, order)
        self.stepped = True
        returned = []
        for bucket in self.buckets(order, optimizer.bucket_bytes):
            data, grads = [m.data_ptr() for m in self.masters], [0] * len(self.masters)
            for number in bucket:
                grads[number] = self.incoming[number].data_ptr()
            self.handle.step(data, grads)
            self.recounted += len(self.masters)
            returned += [(self.copy(p.detach(), self.outgoing[number], p, BACK), p)
                         for number, p in ((n, self.params[n]) for n in bucket)]
        self.taken += bool(order)
        self.recounted -= len(self.masters)
        for ticket, p in returned:
            self.wait(ticket, p, BACK)
        self.copies.finish()
        for number in order:
            self.versions[number] = version_of(self.params[number])
        self.arrived.clear()

    def scale(self, optimizer, order):
        """Set the factor on the gradients. What is not finite is refused here: after that, nothing
        can fail that one bucket would notice and another would not."""
        for number in [n for n, filled in self.filled.items() if filled and n not in self.arrived]:
            self.incoming[number].zero_()
            self.filled[number] = False
        given = getattr(optimizer, "grad_scale", None)
        scale = 1.0 if given is None else 1 / float(given)
        self.handle.set_grad_scale(scale)
        norms = {number: norm_of(self.incoming[number]) for number in order}
        for number, norm in norms.items():
            if not math.isfinite(norm):
                self.refuse_non_finite(number)
        norm = scale * math.hypot(*(norm for norm in norms.values() if math.isfinite(norm)))
        if optimizer.max_norm is not None and norm > optimizer.max_norm:
            self.handle.set_grad_scale(scale * optimizer.max_norm / norm)

    def refuse_non_finite(self, number):
        group = next(group for group in self.optimizer().param_groups
                     if any(p is self.params[number] for p in group["params"]))
        options = make_options(group["recipe"], given_of(group))
        if CHOICES["nonfinite"][options.plan.nonfinite] == "error":
            self.arrived.clear()
            raise NonFiniteError(f"the gradient of {self.names[number]!r} is not finite: use "
                                 "nonfinite=\"skip\" to leave such parameters as they are")

    def buckets(self, order, limit):
        bucket, size = [], 0
        for number in order:
            bucket.append(number)
            size += 4 * self.sizes[number]
            if size >= limit:
                yield bucket
                bucket, size = [], 0
        if bucket:
            yield bucket

    # ---- reports and state ----

    def counters(self):
        """Those of the library, and the seconds of copying and of waiting for copies."""
        found = self.handle.counters()
        found["steps"] = self.taken
        found["skipped"] -= self.recounted
        found.update(self.copies.seconds())
        return found

    def save(self, path):
        if any(sent is not master for sent, master in zip(self.outgoing, self.masters)):
            raise RuntimeError("the library's files have no place for the f32 masters of half-precision "
                               "parameters: use state_dict() and load_state_dict(), which have them")
        super().save(path)

    def state(self):
        found = super().state()
        for number, p in enumerate(self.params):
            if p in found and self.outgoing[number] is not self.masters[number]:
                found[p]["master"] = self.masters[number]
        return found


def version_of(p):
    """What changes when other hands write a parameter, or move it."""
    return p._version, p.data_ptr()


def norm_of(g):
    """In double, in which no square of a float overflows: finite if all of g is."""
    return math.hypot(*(float(torch.linalg.vector_norm(part, dtype=torch.float64))
                        for part in g.reshape(-1).split(_SUMMED)))

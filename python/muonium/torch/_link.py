"""The library's optimizer behind the groups of a torch.optim.Optimizer."""

import ctypes
import warnings
from collections import defaultdict
from operator import is_
from typing import List, Optional

import torch

from .._arrays import Array, BF16, F16, F32, INT8, dense_strides, refuse_outside_storage
from .._handle import Handle
from .._library import State
from .._options import KNOWN, make_options
from ._device import SMALL, DeviceAdam, stays_on_device
from ._groups import given_of, names_of_group, route_of_group, whole_steps
from ._tensors import (DTYPES, is_dense, is_dtensor, is_packed, refuse_flattened, refuse_foreign,
                       refuse_freed)

_STATE_DTYPES = {F32: torch.float32, BF16: torch.bfloat16, INT8: torch.int8}
_BLOCK = 2048  # elements of int8 state with one scale: MUONIUM_STATE_BLOCK
_stride, _numel, _data_ptr = torch.Tensor.stride, torch.Tensor.numel, torch.Tensor.data_ptr
_storage = getattr(torch.Tensor, "untyped_storage", None) or torch.Tensor._storage  # before 2.0
_nbytes = type(_storage(torch.empty(0))).nbytes

# What is followed from step to step without making anything anew.
_LIVE = ("lr", "weight_decay", "momentum")

# Keys of a parameter's state, as torch and timm have them, and the library's names.
STATE_KEYS = {"momentum_buffer": "momentum", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq",
              "normuon": "normuon", "master": "master", "radius": "radius",
              "momentum_scale": "momentum_scale", "exp_avg_scale": "exp_avg_scale"}

# Those that may be int8, and the keys of their scales.
_SCALES = {"momentum_buffer": "momentum_scale", "exp_avg": "exp_avg_scale"}


def state_keys(state):
    """Keys and fields of a parameter. timm calls AdaMuon's mean square as it does AdamW's."""
    return [(key, "adamuon" if key == "exp_avg_sq" and state.adamuon else field)
            for key, field in STATE_KEYS.items()]


def state_shape(field, state, shape):
    """Of an array of a parameter of this shape."""
    return {"normuon": (state.rows,), "radius": (state.matrices,), "momentum_scale": (state.blocks,),
            "exp_avg_scale": (state.blocks,)}.get(field, shape)


def quantized(value):
    """Integers and the scales of their blocks, to nearest."""
    flat = value.detach().to("cpu", torch.float32).reshape(-1)
    blocks = torch.nn.functional.pad(flat, (0, -flat.numel() % _BLOCK)).reshape(-1, _BLOCK)
    scales = blocks.abs().amax(1) / 127
    integers = torch.nan_to_num(blocks / scales[:, None]).round().clamp(-127, 127)
    return integers.to(torch.int8).reshape(-1)[:flat.numel()].reshape(value.shape), scales


def dequantized(value, scales):
    each = scales.detach().to("cpu", torch.float32).repeat_interleave(_BLOCK)[:value.numel()]
    return value.detach().to("cpu", torch.float32) * each.reshape(value.shape)


def as_kept(entry, own, name):
    """A state with momentum and first moment of the types that the library keeps."""
    entry = dict(entry)
    for key, scale_key in _SCALES.items():
        value, scales = entry.get(key), entry.get(scale_key)
        if not isinstance(value, torch.Tensor):
            continue
        kept = dtype_of(STATE_KEYS[key], own)
        if value.dtype != torch.int8 and kept == torch.int8:
            entry[key], entry[scale_key] = quantized(value)
        elif value.dtype == torch.int8:
            blocks = (-(-value.numel() // _BLOCK),)
            if not isinstance(scales, torch.Tensor) or tuple(scales.shape) != blocks:
                raise ValueError(f"{key} of {name!r} is int8: it needs {scale_key}, a tensor of "
                                 f"shape {blocks}")
            if kept != torch.int8:
                entry[key] = dequantized(value, scales)
        if kept != torch.int8:
            entry.pop(scale_key, None)
    return entry


class Restrided(Exception):
    """A parameter has other strides than before, as after to(memory_format=...)."""


class Link:
    """The library's optimizer for some groups, with the state given.

    The lists have an entry per parameter, by the library's numbers: what it and its
    gradient must look like for their addresses to be all that a step needs.
    """

    def __init__(self, groups, state=None):
        self.handle = Handle(make_options(groups[0]["recipe"], given_of(groups[0])))
        self.params: List[torch.Tensor] = []
        self.names: List[str] = []
        self.shapes: List[torch.Size] = []
        self.strides: List[tuple] = []
        self.grad_strides: List[tuple] = []
        self.sizes: List[int] = []
        self.dtypes: List[torch.dtype] = []
        self.single: List[int] = []    # parameters of one element
        self.data: List[Optional[int]] = []     # addresses of parameters in the last step
        self.sources: List[Optional[int]] = []  # and of gradients
        self.held: List[Optional[int]] = []     # bytes of the storages of parameters
        self.given: List[Optional[int]] = []    # and of gradients
        self.frozen: List[tuple] = []  # parameters to be added with their first gradient
        self.groups: List[tuple] = []
        self.device = DeviceAdam()
        self.stepped = False  # there may be state that Python has not seen
        self.complete = False  # state includes parameters that have taken no step
        self.whole = False    # not while parameters are being added
        for group in groups:
            self.add_group(group, state)
        self.whole = True

    @staticmethod
    def takes(group):
        """Whether add_group can add such a group."""
        return not any(map(is_dtensor, group["params"]))

    def add_group(self, group, state=None):
        pointer, named = self.add_group_only(group)
        small = []
        for p, name in named:
            entry = state.get(p) if state else None
            if stays_on_device(p):
                self.device.add(p, name, group)
                if p.ndim >= 2 and route_of_group(group) != "adam":
                    small.append(name)
                if entry:
                    self.device.set_state(p, entry)
                    self.stepped = True
                continue
            refuse_foreign(p, name)
            if p.requires_grad or p.grad is not None or entry:
                self.add(p, name, group, pointer, entry)
            else:
                self.frozen.append((p, name, group, pointer))
        if small and state is None:
            warnings.warn(f"matrices of fewer than {SMALL} elements are on a device and get AdamW "
                          f"there: {len(small)}, as {small[0]!r}. Move them to the CPU for Muon, or "
                          "say use_muon=False", stacklevel=4)
        self.whole = True

    def add_group_only(self, group):
        """Add a group without its parameters; its pointer, and the parameters with their names."""
        self.whole = False
        pointer = self.handle.add_group(make_options(group["recipe"], given_of(group)))
        index = len(self.groups)
        self.groups.append((pointer, live_of(group), settled_of(group), list(group["params"])))
        return pointer, zip(group["params"], names_of_group(index, group))

    def add(self, p, name, group, pointer, entry=None):
        strides = dense_strides(p.shape)
        for t in (p, p.grad):
            if is_dense(t) and is_packed(t):  # so that a copy can have these strides, too
                strides = t.stride()
        array = Array(p.data_ptr(), DTYPES[p.dtype], tuple(p.shape), p.stride(), p)
        refuse_freed(p, array.address, repr(name))
        number = self.handle.add(name, array, given_of(group), pointer, strides)
        for entries, value in ((self.params, p), (self.names, name), (self.shapes, p.shape),
                               (self.strides, p.stride()), (self.grad_strides, strides),
                               (self.sizes, p.numel()), (self.dtypes, p.dtype),
                               (self.data, None), (self.sources, None),
                               (self.held, None), (self.given, None)):
            entries.append(value)
        if p.numel() == 1:
            self.single.append(number)
        if entry:
            self.set_state(number, entry)
            self.stepped = True

    def follow(self, groups):
        """Hand on what has changed in the groups; False if that takes a new link."""
        for group, (pointer, live, settled, params) in zip(groups, self.groups):
            if settled_of(group) != settled:
                return False
            if len(params) != len(group["params"]) or not all(map(is_, params, group["params"])):
                refuse_flattened(params, group["params"])
                return False
            for name in _LIVE:
                value = float(group[name])
                if value != live[name]:
                    self.handle.set(name, value, pointer)
                    live[name] = value
        return True

    def step(self):
        if self.frozen:
            self.thaw()
        params = self.params
        grads = [p.grad for p in params]
        data = list(map(_data_ptr, params))
        if self.as_expected(params, grads, data):
            sources = list(map(_data_ptr, grads))
        else:
            grads = [g if g is None else self.fitting(i, g) for i, g in enumerate(grads)]
            sources = [0 if g is None else _data_ptr(g) for g in grads]
        held, given = self.check_memory(grads, data, sources)
        self.stepped = True  # before the step, since an interrupt may follow it at once
        self.handle.step(data, sources)
        self.device.step()
        self.data, self.sources, self.held, self.given = data, sources, held, given

    def thaw(self):
        """Add frozen parameters that have a gradient now."""
        thawed = [entry for entry in self.frozen if entry[0].grad is not None]
        if thawed:
            self.whole = False
            self.frozen = [entry for entry in self.frozen if entry[0].grad is None]
            for entry in thawed:
                self.add(*entry)
            self.whole = True

    def check_memory(self, grads, data, sources):
        """Refuse tensors whose storage was freed or resized; the sizes of all storages, of the
        parameters and of the gradients. Only what differs from the last step is inspected. An
        address alone tells too little: a storage that is resized twice may be where it was."""
        held = list(map(_nbytes, map(_storage, self.params)))
        if data != self.data or held != self.held:
            for i, p in enumerate(self.params):
                if data[i] != self.data[i] or held[i] != self.held[i]:
                    refuse_freed(p, data[i], repr(self.names[i]))
        given = [0 if g is None else _nbytes(_storage(g)) for g in grads]
        if sources != self.sources or given != self.given:
            for i, g in enumerate(grads):
                if (g is not None and (sources[i], given[i]) != (self.sources[i], self.given[i])
                        and (sources[i] == 0 or given[i] < (g.storage_offset() + self.sizes[i])
                             * g.element_size())):
                    refuse_freed(g, sources[i], f"the gradient of {self.names[i]!r}")
        return held, given

    def as_expected(self, params, grads, data):
        """Whether all have a gradient, and nothing has changed but addresses. Whole lists are
        compared, since a step with many small parameters spends its time here."""
        try:
            return (list(map(_stride, grads)) == self.grad_strides
                    and list(map(_stride, params)) == self.strides
                    and [p.shape for p in params] == self.shapes
                    and list(map(_numel, grads)) == self.sizes
                    and [g.dtype for g in grads] == self.dtypes
                    and not any([grads[i].is_neg() for i in self.single])
                    # Another type or device is another place.
                    and (data == self.data or ([p.dtype for p in params] == self.dtypes
                                               and all([p.is_cpu for p in params]))))
        except (RuntimeError, TypeError):  # a sparse gradient, or none
            return False

    def fitting(self, i, g):
        """A gradient that the library can read where it was told to look, or an error."""
        p, name, shape, dtype = self.params[i], self.names[i], self.shapes[i], self.dtypes[i]
        if p.shape != shape or p.dtype != dtype:
            raise ValueError(f"{name!r} was {tuple(shape)} of {dtype} when the optimizer was made, "
                             f"and is {tuple(p.shape)} of {p.dtype} now: make a new optimizer")
        refuse_foreign(p, name)
        if not is_dense(g):
            raise TypeError(f"the gradient of {name!r} is {g.layout}: sparse gradients are not "
                            "supported; make embeddings with sparse=False")
        if g.shape != shape or g.dtype != dtype or not g.is_cpu:
            raise ValueError(f"the gradient of {name!r} is {tuple(g.shape)} of {g.dtype} on "
                             f"{g.device}, the parameter {tuple(shape)} of {dtype}: they must agree")
        if p.stride() != self.strides[i]:
            raise Restrided
        refuse_outside_storage(g, f"the gradient of {name!r}")
        told = self.grad_strides[i]
        if g.is_neg():  # its memory holds the opposite, as of x.conj().imag
            g = g.resolve_neg()
        if g.stride() == told:
            return g
        if all(a == b for a, b, size in zip(g.stride(), told, shape) if size != 1):
            self.grad_strides[i] = g.stride()
            return g
        return torch.empty_strided(shape, told, dtype=dtype).copy_(g)

    def reports(self):
        return self.handle.reports() + self.device.reports()

    def counters(self):
        return self.handle.counters()

    def save(self, path):
        if self.device.optimizer is not None:
            raise RuntimeError("the library's files have no place for the state of small parameters "
                               "that stay on a device: use state_dict() and load_state_dict()")
        self.handle.save(path)

    def load(self, path):
        self.handle.load(path)

    # ---- state ----

    def state(self):
        """State by parameter, for those that have taken a step."""
        found = defaultdict(dict)
        for number, p in enumerate(self.params):
            state = self.handle.state(number)
            if state.steps == 0 and not self.complete:
                continue
            exact = torch.float32 if state.steps <= 2**24 else torch.float64
            entry = {"step": torch.tensor(float(state.steps), dtype=exact)}
            for key, field in state_keys(state):
                address = getattr(state, field)
                if address:
                    shape = state_shape(field, state, p.shape)
                    entry[key] = self.view(address, dtype_of(field, state), shape)
            found[p] = entry
        found.update(self.device.state())
        return found

    def view(self, address, dtype, shape):
        """A tensor over memory of the library, which it keeps alive."""
        count = shape.numel() if isinstance(shape, torch.Size) else shape[0]
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        size = torch.empty((), dtype=dtype).element_size()
        memory = (ctypes.c_char * (count * size)).from_address(address)
        memory.owner = self.handle
        return torch.frombuffer(memory, dtype=dtype).reshape(shape)

    def set_state(self, number, entry):
        own, name = self.handle.state(number), self.names[number]
        state = State(steps=whole_steps(entry.get("step", 1), name), elements=own.elements,
                      rows=own.rows, matrices=own.matrices, blocks=own.blocks,
                      momentum_dtype=own.momentum_dtype, exp_avg_dtype=own.exp_avg_dtype)
        needed = ["momentum_buffer"] if own.momentum else ["exp_avg", "exp_avg_sq"]
        if any(not isinstance(entry.get(key), torch.Tensor) for key in needed):
            raise ValueError(f"the state of {name!r} has {', '.join(map(str, entry))}: it needs "
                             f"{' and '.join(needed)}; see report() for who gets Muon, and "
                             "use_muon in a group to decide it")
        entry, kept = as_kept(entry, own, name), []
        for key, field in state_keys(own):
            value = entry.get(key)
            if value is not None:
                if not isinstance(value, torch.Tensor):
                    raise TypeError(f"{key} of {name!r} is of type {type(value).__name__}: use a "
                                    "tensor")
                refuse_freed(value, 1, f"{key} of {name!r}")
                shape = tuple(state_shape(field, own, self.shapes[number]))
                if tuple(value.shape) != shape:
                    raise ValueError(f"{key} of {name!r} has shape {tuple(value.shape)}: it must be "
                                     f"{shape}")
                value = value.detach().to("cpu", dtype_of(field, own)).contiguous().resolve_neg()
                refuse_freed(value, value.data_ptr(), f"{key} of {name!r}")
                kept.append(value)
                setattr(state, field, value.data_ptr())
        self.handle.set_state(number, state)


def dtype_of(field, state):
    kinds = {"momentum": state.momentum_dtype, "exp_avg": state.exp_avg_dtype}
    return _STATE_DTYPES[kinds.get(field, F32)]


def live_of(group):
    return {name: float(group[name]) for name in _LIVE}


def settled_of(group):
    """The options that a change of which takes a new link."""
    return {key: value for key, value in group.items() if key in KNOWN and key not in _LIVE}

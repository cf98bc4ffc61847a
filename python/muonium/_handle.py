"""An optimizer of the library, under the two classes that wrap it."""

import array
import ctypes
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from . import _library
from ._arrays import Array
from ._library import DTYPES, FORMS, MAX_DIMS, Sink, Tensor, c_text, library, shown
from ._options import tensor_options


class Report(NamedTuple):
    """What a parameter gets, before or after any step."""

    name: str
    optimizer: str    #: "muon" or "adam"
    reason: str       #: as "ok", "insufficient_dims", "name_pattern:*norm*"
    matrices: int     #: orthogonalised per step
    rows: int         #: of the first of them
    cols: int
    form: str         #: how it is evaluated
    restarts: int
    direct_set: Optional[str]  #: of the direct form
    flops: float      #: per step, all matrices
    state_bytes: int  #: momentum, moments, master copy
    step_rms: float   #: root mean square of a step
    lr: float         #: as in force
    steps: int        #: taken by this parameter
    precision: str = "f32"  #: of the iteration; where that is "auto", what was chosen


def _steps(strides):
    """Strides for the library; None means a dense array."""
    return None if strides is None else (ctypes.c_ssize_t * MAX_DIMS)(*strides)


class HalfCopies(NamedTuple):
    """Of an f32 parameter: gradient and outgoing copy, of a half type."""

    dtype: int  # a muonium_dtype
    grad: int   # addresses
    copy: int


class Handle:
    """Owns a muonium_optimizer; its parameters are known by their numbers."""

    def __init__(self, options: _library.Options, create: Any = library.muonium_create):
        self._pointer = None
        pointer = ctypes.c_void_p()
        create(options, pointer)
        self._pointer = pointer
        self._length = 0

    def __del__(self, destroy=library.muonium_destroy):
        if self._pointer is not None:
            destroy(self._pointer)

    def __len__(self) -> int:
        return self._length

    def add_group(self, options: _library.Options) -> ctypes.c_void_p:
        group = ctypes.c_void_p()
        library.muonium_add_group(self._pointer, options, group)
        return group

    def add(self, name: Optional[str], data: Array, given: Mapping[str, Any],
            group: Optional[ctypes.c_void_p] = None, grad_strides: Optional[tuple] = None,
            half: Optional[HalfCopies] = None) -> int:
        """Add a parameter with the options that concern it; its number."""
        if len(data.shape) > MAX_DIMS:
            raise ValueError(f"{shown(name or 'a parameter')} has {len(data.shape)} dimensions: at most "
                             f"{MAX_DIMS}")
        tensor = Tensor(name=None if name is None else c_text("a name", name), dtype=data.dtype,
                        ndim=len(data.shape), data=data.address, strides=_steps(data.strides),
                        grad_strides=_steps(grad_strides))
        tensor.shape[:len(data.shape)] = data.shape
        if half is not None:
            tensor.half_grad, tensor.grad = half.dtype, half.grad
            tensor.copy, tensor.copy_dtype = half.copy, half.dtype
        tensor_options(tensor, given)
        library.muonium_add_sized(self._pointer, tensor, ctypes.sizeof(tensor), group)
        self._length += 1
        return self._length - 1

    def step(self, data: List[int], grads: List[int]) -> None:
        """One step with parameters and gradients at these addresses; 0: no gradient. Without
        parameters nothing is done."""
        if not data:
            return
        places, sources = array.array("Q", data), array.array("Q", grads)
        library.muonium_step_at(self._pointer, places.buffer_info()[0], sources.buffer_info()[0],
                                len(data))

    def set(self, name: str, value: float, group: Optional[ctypes.c_void_p] = None) -> None:
        """Change lr, weight_decay or momentum, of a group or of all."""
        getattr(library, "muonium_set_" + name)(self._pointer, group, value)

    def set_grad_scale(self, scale: float) -> None:
        """The factor on the gradients of the next steps."""
        library.muonium_set_grad_scale(self._pointer, scale)

    def report(self, parameter: int) -> Report:
        found = _library.ParameterReport()
        library.muonium_report_sized(self._pointer, parameter, found, ctypes.sizeof(found))
        return Report(found.name.decode(), "muon" if found.muon else "adam", found.reason.decode(),
                      found.matrices, found.rows, found.cols, FORMS[found.form], found.restarts,
                      found.direct_set.decode() if found.direct_set else None, found.flops, found.state_bytes, found.step_rms, found.lr, found.steps,
                      DTYPES[found.precision])

    def reports(self) -> List[Report]:
        return [self.report(parameter) for parameter in range(self._length)]

    def counters(self) -> Dict[str, Any]:
        found = _library.Counters()
        library.muonium_count_sized(self._pointer, found, ctypes.sizeof(found))
        return {name: getattr(found, name) for name, *_ in found._fields_[1:]}

    def state(self, parameter: int) -> _library.State:
        found = _library.State()
        library.muonium_state_of_sized(self._pointer, parameter, found, ctypes.sizeof(found))
        return found

    def set_state(self, parameter: int, state: _library.State) -> None:
        library.muonium_set_state_sized(self._pointer, parameter, state, ctypes.sizeof(state))

    def save(self, path: Any) -> None:
        library.muonium_save(self._pointer, c_text("the path", os.fsencode(path)))

    def saved(self) -> bytes:
        """What save would write."""
        pieces: List[bytes] = []
        errors: List[BaseException] = []

        def write(context: Any, data: int, size: int) -> bool:
            try:
                pieces.append(ctypes.string_at(data, size))
            except BaseException as error:  # an interrupt, or no memory: ctypes would drop it
                errors.append(error)
            return not errors

        try:
            library.muonium_save_to(self._pointer, Sink(write), None)
        except OSError:
            if errors:
                raise errors[0] from None
            raise
        return b"".join(pieces)

    def restore(self, saved: bytes) -> None:
        """Go on from what saved() gave."""
        reader = ctypes.c_void_p()
        library.muonium_reader_open_memory(saved, len(saved), reader)
        try:
            library.muonium_load_reader_sized(self._pointer, reader, None, None, 0)
        finally:
            library.muonium_reader_close(reader)

    def load(self, path: Any) -> None:
        library.muonium_load(self._pointer, c_text("the path", os.fsencode(path)))

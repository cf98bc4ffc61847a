"""Runs of the library beside the reference, on the inputs of reference.trajectory."""
from functools import lru_cache

import numpy as np

from muonium_library import Optimizer, load, make_options, store
from reference import layouts
from reference.coefficients import choose
from reference.orthogonalize import orthogonalize
from reference.optimizer import Optimizer as Reference
from reference.recipes import EXACT, recipe
from reference.rounding import round_to
from reference.trajectory import TARGET, Spec, initial, unit

SEED = 1  # inputs are hashed, and the tolerances hold for these

# Every way from a tensor to matrices. Small, since the reference is slow.
SPECS = (
    Spec("wide", (16, 24)),
    Spec("tall", (28, 12)),
    Spec("conv", (12, 6, 2, 2), layouts.flatten(4)),
    Spec("conv_spatial", (12, 6, 1, 2), layouts.spatial()),
    Spec("experts", (2, 12, 8), layouts.experts()),
    Spec("nested_experts", (2, 1, 8, 12), layouts.experts()),
    Spec("qkv", (24, 16), layouts.row_blocks(sizes=(12, 8, 4))),
    Spec("heads", (16, 12), layouts.row_blocks(heads=2)),
    Spec("fan", (6, 5, 8), layouts.fan(out_axes=(2,), in_axes=(0, 1))),
    Spec("three", (4, 6, 5)),  # whatever the recipe makes of it
    Spec("ln_1.weight", (8, 8)),
    Spec("vector", (33,)),
    Spec("scalar", ()),
)


choose_once = lru_cache(choose)


def newton_schulz(matrix, o):
    """That of the reference, without choosing the same table for every matrix."""
    return orthogonalize(matrix, choose_once(o.coefficients, o.steps),
                         normalization=o.normalization, eps_mode=o.eps_mode, eps=o.eps,
                         safety_factor=o.safety_factor, precision=o.precision,
                         rounding=o.rounding)


@lru_cache(maxsize=None)
def units(stream, specs):
    return [unit(SEED, stream, i, spec.shape) for i, spec in enumerate(specs)]


def gradient(specs, step, index, w, dtype):
    """That of reference.trajectory, with what does not depend on the weights computed once."""
    kind = np.float64 if dtype == "f64" else np.float32
    target = units(TARGET, specs)[index].astype(kind)
    noise = units(step, specs)[index].astype(kind)
    return round_to(dtype, noise + kind(0.125) * (np.asarray(w, dtype=kind) - target))


class Pair:
    """The library on parameters of type `dtype`, and the reference on the same inputs: in exact
    arithmetic, or rounding as the library does if `emulate`.

    `fields` are options for both; `groups` gives parameters, by name, options of their own."""

    def __init__(self, recipe_name=None, specs=SPECS, dtype="f32", emulate=False,
                 groups=None, f32_grad=False, **fields):
        self.specs, self.dtype, self.f32_grad = specs, dtype, f32_grad
        self.reference_dtype = dtype if emulate else "f64"
        exact = {} if emulate else EXACT
        self.reference = Reference(recipe(recipe_name or "muonium", **{**fields, **exact}),
                                   newton_schulz)
        self.library = Optimizer(make_options(recipe_name, **fields))
        self.steps = 0
        self.data, self.grads = [], []
        for i, spec in enumerate(specs):
            own = dict((groups or {}).get(spec.name, {}))
            start = round_to(dtype, initial(SEED, i, spec))
            self.reference.add(spec.name, start, self.reference_dtype, spec.layout,
                               **({**own, **exact} if own else {}))
            group = None
            if own:
                group = self.library.add_group(make_options(recipe_name, **{**fields, **own}))
            self.data.append(store(dtype, start))
            self.grads.append(np.zeros_like(store("f32" if f32_grad else dtype, start)))
            self.library.add(spec.name, self.data[i], dtype, spec.layout, self.grads[i],
                             f32_grad=f32_grad, group=group)

    def weights(self):
        return [load(self.dtype, w) for w in self.data]

    def exact(self):
        return [p.data for p in self.reference.parameters]

    def run(self, steps, without=()):
        """Step both. `without`: names of parameters that have no gradient in these steps."""
        grad_dtype = "f32" if self.f32_grad else self.dtype
        for _ in range(steps):
            self.steps += 1
            theirs = []
            for i, spec in enumerate(self.specs):
                p = self.reference.parameters[i]
                absent = spec.name in without
                theirs.append(None if absent else
                              gradient(self.specs, self.steps, i, p.data, self.reference_dtype))
                g = gradient(self.specs, self.steps, i, load(self.dtype, self.data[i]),
                             grad_dtype)
                self.grads[i][...] = store(grad_dtype, g)
                self.library.set_grad(i, None if absent else self.grads[i])
            self.reference.step(theirs)
            self.library.step()
        return self

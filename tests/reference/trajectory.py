"""Whole runs of the optimizer on inputs that any language can reproduce bit for bit.

All arithmetic on integers is modulo 2^64. One round of splitmix64 is

    mix(z):  z += 0x9E3779B97F4A7C15
             z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
             z = (z ^ (z >> 27)) * 0x94D049BB133111EB
             return z ^ (z >> 31)

and element e (row-major index) of parameter p in stream s under `seed` hashes to

    h = mix(mix(mix(mix(seed) + s) + p) + e)
    unit(seed, s, p, e) = ((h >> 40) - 2^23) * 2^-23

a 24-bit number in [-1, 1), exact in f32. From it, with s = 0 for the start,
s = 2^32 for the target and s = t for the noise of step t = 1, 2, ...:

    w0     = 0.5 * unit(seed, 0, p, e), then rounded to the parameter's type
    target = unit(seed, 2^32, p, e)
    g_t    = unit(seed, t, p, e) + 0.125 * (w - target)

The gradient is computed in f32 (in f64 for an f64 parameter): one subtraction,
rounded; an exact product; one addition, rounded; so contraction into a fused
multiply-add changes nothing. It is then rounded to the parameter's type.

The noise keeps the momentum well conditioned and the pull to the target makes a
run contract, so that rounding does not grow: a start that is off by 1e-7 is off by
no more than that after 1,000 steps, while a wrong formula shows at once.

First values for seed 1, stream 0, parameter 0, elements 0 to 2:
    0.76957952976226807, 0.55571579933166504, -0.13504636287689209
"""
import argparse
from dataclasses import dataclass

import numpy as np

from . import layouts
from .optimizer import Optimizer
from .recipes import EXACT, RECIPES, recipe
from .rounding import round_to

START, TARGET = 0, 2**32


@dataclass(frozen=True)
class Spec:
    name: str
    shape: tuple
    layout: layouts.Layout = None
    dtype: str = "f64"


SPECS = (
    Spec("wide", (24, 40)),
    Spec("tall", (48, 20)),
    Spec("conv", (16, 8, 3, 3), layouts.flatten(4)),
    Spec("conv_spatial", (16, 8, 3, 3), layouts.spatial()),
    Spec("experts", (4, 24, 16), layouts.experts()),
    Spec("qkv", (48, 32), layouts.row_blocks(sizes=(24, 12, 12))),
    Spec("vector", (33,)),
    Spec("scalar", ()),
)


def mix(z):
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def unit(seed, stream, parameter, shape):
    """Numbers in [-1, 1) for every element of a tensor, exact in f32, as float64."""
    # An array even for single numbers: NumPy warns when a lone uint64 wraps around.
    z = mix(np.array([seed], dtype=np.uint64))
    z = mix(z + np.uint64(stream))
    z = mix(z + np.uint64(parameter))
    z = mix(z + np.arange(int(np.prod(shape)), dtype=np.uint64))
    signed = (z >> np.uint64(40)).astype(np.int64) - 2**23
    return (signed * 2.0**-23).reshape(shape)


def initial(seed, index, spec):
    return round_to(spec.dtype, 0.5 * unit(seed, START, index, spec.shape))


def gradient(seed, step, index, w, dtype="f64"):
    """The gradient of step `step` (from 1) at `w`, which is held in `dtype`."""
    kind = np.float64 if dtype == "f64" else np.float32
    target = unit(seed, TARGET, index, np.shape(w)).astype(kind)
    noise = unit(seed, step, index, np.shape(w)).astype(kind)
    pull = kind(0.125) * (np.asarray(w, dtype=kind) - target)
    return round_to(dtype, noise + pull)


def build(name, seed, specs=SPECS, start=None, **overrides):
    """An optimizer holding the initial parameters, or those of `start`."""
    opt = Optimizer(recipe(name, **overrides))
    for i, spec in enumerate(specs):
        data = initial(seed, i, spec) if start is None else start[i]
        opt.add(spec.name, data, spec.dtype, spec.layout)
    return opt


def run(name, seed, length, specs=SPECS, start=None, **overrides):
    """The parameters after `length` steps, as a list of float64 arrays. With f64 specs and
    **EXACT this is the exact trajectory of the recipe."""
    opt = build(name, seed, specs, start, **overrides)
    for t in range(1, length + 1):
        opt.step([gradient(seed, t, i, p.data, p.dtype) for i, p in enumerate(opt.parameters)])
    return [p.data for p in opt.parameters]


def distance(found, exact):
    """The largest relative RMS difference of a tensor. Weights are of order 1 here; the floor
    keeps a lone scalar that happens to pass near 0 from looking wrong."""
    def rms(x):
        return np.sqrt(np.mean(np.square(x)))
    return max(rms(x - y) / max(rms(y), 0.25) for x, y in zip(found, exact, strict=True))


def main():
    parser = argparse.ArgumentParser(description="Run the reference optimizer on hashed inputs.")
    parser.add_argument("--recipe", default="muonium", choices=sorted(RECIPES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, help="default: the recipe's; 0.02 for optax")
    parser.add_argument("--out", help="write the final parameters to this .npz file")
    args = parser.parse_args()
    lr = args.lr if args.lr is not None else (0.02 if args.recipe == "optax" else None)
    overrides = dict(EXACT, **({} if lr is None else {"lr": lr}))
    final = run(args.recipe, args.seed, args.steps, **overrides)
    for spec, w in zip(SPECS, final):
        print(f"{spec.name:13} {str(spec.shape):15} norm {np.linalg.norm(w):.15g} "
              f"first {w.flat[0]:.17g}")
    if args.out:
        np.savez(args.out, **{spec.name: w for spec, w in zip(SPECS, final)})


if __name__ == "__main__":
    main()

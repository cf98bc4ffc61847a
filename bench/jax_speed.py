#!/usr/bin/env python3
"""jax_speed.py [--layers N]: muonium.jax and muonium.optax beside optax.contrib.muon, in one process.

Both run under jit, in turns; the shortest time counts. Needs JAX and Optax:

    ~/.cache/muonium/compare/bin/python bench/jax_speed.py

It prints a table for bench/results.
"""
import argparse
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
from optax.contrib import _muon as theirs  # noqa: E402

import muonium.optax  # noqa: E402
from muonium.jax import orthogonalize  # noqa: E402


def seconds(function, *arguments):
    begin = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - begin


def turns(functions, arguments, rounds):
    """The shortest time of each function, in turns."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        best = [min(b, seconds(f, *arguments)) for b, f in zip(best, functions)]
    return best


def row(what, times, unit=1e3):
    times = list(times)
    print(f"| {what} | {times[0] * unit:.0f} | "
          + " | ".join(f"{t * unit:.0f}, {times[0] / t:.1f} ×" for t in times[1:]) + " |", flush=True)


def orthogonalizations():
    original = jnp.array(theirs._DEFAULT_NS_COEFFS)
    functions = [
        jax.jit(lambda x: theirs.orthogonalize_via_newton_schulz(x, original)),
        jax.jit(lambda x: muonium.optax.orthogonalize_via_newton_schulz(x, original)),
        jax.jit(orthogonalize),
        jax.jit(lambda x: orthogonalize(x, precision="fixed15"))]
    print("| orthogonalise, ms | optax | same polynomial | default | fixed15 |\n|---|---|---|---|---|")
    for shape in ((768, 3072), (1024, 1024)):
        x = jax.random.normal(jax.random.key(0), shape)
        turns(functions, (x,), 1)
        row(f"{shape[0]} × {shape[1]}", turns(functions, (x,), 6))


def gpt2(layers):
    shapes = {"wte": (50257, 768), "wpe": (1024, 768), "norm": (768,)}
    for i in range(layers):
        shapes.update({f"h{i}.qkv": (768, 2304), f"h{i}.proj": (768, 768), f"h{i}.up": (768, 3072),
                       f"h{i}.down": (3072, 768), f"h{i}.norm1": (768,), f"h{i}.norm2": (768,)})
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {name: 0.02 * jax.random.normal(key, shape)
            for key, (name, shape) in zip(keys, shapes.items())}


def updates(layers):
    params = gpt2(layers)
    grads = jax.tree.map(lambda x: x * 0.1, params)
    numbers = {name: optax.contrib.MuonDimensionNumbers() if name[0] == "h" and x.ndim == 2 else None
               for name, x in params.items()}
    made, state = [], None
    for muon, more in ((optax.contrib.muon, {}), (muonium.optax.muon, {}),
                       (muonium.optax.muon, {"recipe": "muonium"})):
        transform = muon(0.02, muon_weight_dimension_numbers=numbers, **more)
        state = transform.init(params)

        def step(grads, state, params, transform=transform):
            updates, state = transform.update(grads, state, params)
            return optax.apply_updates(params, updates), state
        run = jax.jit(step).lower(grads, state, params).compile()
        made.append(lambda run=run, state=state: run(grads, state, params))
    print(f"\n| update of GPT-2 small, {layers} layers, ms | optax | the same | recipe muonium |\n"
          "|---|---|---|---|")
    turns(made[1:], (), 1)
    row("all parameters", turns(made, (), 2))


def overhead():
    """What a call adds to a program of small matrices: of the update with and without it."""
    x = {"w": jnp.ones((8, 8))}
    transform = muonium.optax.scale_by_muon()
    state = transform.init(x)
    momentum = optax.ema(0.95)
    state_of_momentum = momentum.init(x)
    functions = [jax.jit(lambda: transform.update(x, state)[0]),
                 jax.jit(lambda: momentum.update(x, state_of_momentum)[0])]

    def loop(function):
        begin = time.perf_counter()
        for _ in range(2000):
            found = function()
        jax.block_until_ready(found)
        return (time.perf_counter() - begin) / 2000 * 1e6
    times = [min(loop(f) for _ in range(4)) for f in functions]
    print(f"\nA jitted update of one 8 × 8 matrix takes {times[0]:.0f} µs, one of its momentum alone "
          f"{times[1]:.0f} µs.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    arguments = parser.parse_args()
    info = muonium.info()
    print(f"muonium {info['version']}, {info['kernel']}, {info['threads']} threads; jax {jax.__version__}, "
          f"optax {optax.__version__}\n")
    orthogonalizations()
    overhead()
    updates(arguments.layers)


main()

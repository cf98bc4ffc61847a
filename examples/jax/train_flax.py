#!/usr/bin/env python3
"""The GPT of train.py as modules of Flax, trained by nnx.Optimizer with AdamW of Optax and with Muonium.

    python3 examples/jax/train_flax.py                     # both, 150 steps each

Arguments, text, batches and schedule are those of train.py.
"""
import functools
import time

import jax
import numpy as np
import optax
from flax import nnx

import muonium.optax
from train import CONTEXT, HEADS, LAYERS, WIDTH, batches, main, schedule

normal = nnx.initializers.normal
Linear = functools.partial(nnx.Linear, use_bias=False, kernel_init=normal(0.02))
Small = functools.partial(Linear, kernel_init=normal(0.02 / (2 * LAYERS) ** 0.5))  # added to the residual stream


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm_attention, self.norm_mlp = nnx.RMSNorm(WIDTH, rngs=rngs), nnx.RMSNorm(WIDTH, rngs=rngs)
        self.query, self.key, self.value = (Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(3))
        self.project = Small(WIDTH, WIDTH, rngs=rngs)
        self.up, self.down = Linear(WIDTH, 4 * WIDTH, rngs=rngs), Small(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        y = self.norm_attention(x)
        q, k, v = (f(y).reshape(*y.shape[:2], HEADS, -1) for f in (self.query, self.key, self.value))
        x = x + self.project(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape))
        return x + self.down(nnx.gelu(self.up(self.norm_mlp(x))))


class GPT(nnx.Module):
    def __init__(self, characters, rngs):
        embed = functools.partial(nnx.Embed, features=WIDTH, embedding_init=normal(0.02), rngs=rngs)
        self.token_embedding, self.position_embedding = embed(characters), embed(CONTEXT)
        self.blocks = nnx.List(Block(rngs) for _ in range(LAYERS))
        self.norm, self.head = nnx.RMSNorm(WIDTH, rngs=rngs), Linear(WIDTH, characters, rngs=rngs)

    def __call__(self, tokens):
        x = self.token_embedding(tokens) + self.position_embedding(np.arange(CONTEXT))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model, window):
    return optax.softmax_cross_entropy_with_integer_labels(model(window[:, :-1]), window[:, 1:]).mean()


def dimension_numbers(params):
    """Matrices of the blocks get Muon, all others Adam."""
    return jax.tree.map_with_path(
        lambda path, x: optax.contrib.MuonDimensionNumbers()
        if "blocks" in jax.tree_util.keystr(path) and x.ndim == 2 else None, params)


def make_optimizer(name, rate, weight_decay=0.01):
    if name == "adamw":
        return optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=weight_decay)
    return muonium.optax.muon(rate, recipe="muonium", weight_decay=weight_decay,
                              muon_weight_dimension_numbers=dimension_numbers)


@nnx.jit
def step_of(model, optimizer, window):
    optimizer.update(model, nnx.grad(loss_of)(model, window))


def train(name, peak, steps, training, validation, characters):
    """The validation loss after every tenth step, and the seconds of all steps but the first, which compiles."""
    model = GPT(characters, nnx.Rngs(1))
    optimizer = nnx.Optimizer(model, make_optimizer(name, schedule(peak, steps)), wrt=nnx.Param)
    evaluate = nnx.jit(loss_of)
    measured = list(batches(validation, 8, 64, seed=2))
    losses, seconds = [], 0.0
    for number, window in enumerate(batches(training, steps, 32, seed=1), 1):
        begin = time.perf_counter()
        step_of(model, optimizer, window)
        jax.block_until_ready(nnx.state(model))
        seconds += time.perf_counter() - begin if number > 1 else 0
        if number % 10 == 0 or number == steps:
            losses.append((number, float(np.mean([evaluate(model, w) for w in measured]))))
    return losses, seconds


if __name__ == "__main__":
    main(train)

#!/usr/bin/env python3
"""Train a small GPT in JAX on the CPU with AdamW of Optax and with Muonium, side by side.

    python3 examples/jax/train.py                          # both, 150 steps each
    python3 examples/jax/train.py --lr-muon 0.02 --steps 300

Both runs have the same initial weights, batches and schedule. The line that makes the optimizer is
the only difference. The model is a plain tree of arrays; the text is that of `muonium demo`.
"""
import argparse
import functools
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import muonium.optax

TEXT = pathlib.Path(__file__).resolve().parent.parent / "gpt/data/austen.txt"
WIDTH, LAYERS, HEADS, CONTEXT = 128, 4, 4, 64


def initial(characters, seed=1):
    random = np.random.default_rng(seed)

    def matrix(rows, cols, scale=0.02):
        return jnp.asarray(scale * random.standard_normal((rows, cols)), jnp.float32)

    small = 0.02 / (2 * LAYERS) ** 0.5  # what is added to the residual stream
    block = lambda: {  # noqa: E731
        "norm_attention": jnp.ones(WIDTH), "norm_mlp": jnp.ones(WIDTH),
        "query": matrix(WIDTH, WIDTH), "key": matrix(WIDTH, WIDTH), "value": matrix(WIDTH, WIDTH),
        "project": matrix(WIDTH, WIDTH, small),
        "up": matrix(WIDTH, 4 * WIDTH), "down": matrix(4 * WIDTH, WIDTH, small)}
    return {"token_embedding": matrix(characters, WIDTH),
            "position_embedding": matrix(CONTEXT, WIDTH), "blocks": [block() for _ in range(LAYERS)],
            "norm": jnp.ones(WIDTH), "head": matrix(WIDTH, characters)}


def normalized(x, gain):
    return gain * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def block_of(x, p):
    batch, context, width = x.shape
    y = normalized(x, p["norm_attention"])
    q, k, v = ((y @ p[name]).reshape(batch, context, HEADS, -1) for name in ("query", "key", "value"))
    x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ p["project"]
    return x + jax.nn.gelu(normalized(x, p["norm_mlp"]) @ p["up"]) @ p["down"]


def loss_of(params, window):
    inputs, targets = window[:, :-1], window[:, 1:]
    x = params["token_embedding"][inputs] + params["position_embedding"]
    for block in params["blocks"]:
        x = block_of(x, block)
    logits = normalized(x, params["norm"]) @ params["head"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def dimension_numbers(params):
    """Matrices between embeddings and head get Muon, all others Adam."""
    return jax.tree.map_with_path(
        lambda path, x: optax.contrib.MuonDimensionNumbers()
        if path[0].key == "blocks" and x.ndim == 2 else None, params)


def make_optimizer(name, rate, weight_decay=0.01):
    if name == "adamw":
        return optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=weight_decay)
    return muonium.optax.muon(rate, recipe="muonium", weight_decay=weight_decay,
                              muon_weight_dimension_numbers=dimension_numbers)


def batches(text, count, size, seed):
    random = np.random.default_rng(seed)
    for _ in range(count):
        start = random.integers(len(text) - CONTEXT - 1, size=(size, 1))
        yield text[start + np.arange(CONTEXT + 1)]


def schedule(peak, steps):
    warmup = max(1, steps // 10)
    return lambda step: peak * jnp.minimum((step + 1) / warmup, (steps - step) / (steps - warmup))


def train(name, peak, steps, training, validation, characters):
    """The validation loss after every tenth step, and the seconds without compilation."""
    optimizer = make_optimizer(name, schedule(peak, steps))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, window):
        grads = jax.grad(loss_of)(params, window)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = initial(characters)
    state = optimizer.init(params)
    measured = list(batches(validation, 8, 64, seed=2))
    evaluate = jax.jit(loss_of)
    windows = list(batches(training, steps, 32, seed=1))
    run = step.lower(params, state, windows[0]).compile()
    losses, seconds = [], 0.0
    for number, window in enumerate(windows, 1):
        begin = time.perf_counter()
        params, state = jax.block_until_ready(run(params, state, window))
        seconds += time.perf_counter() - begin
        if number % 10 == 0 or number == steps:
            losses.append((number, float(np.mean([evaluate(params, w) for w in measured]))))
    return losses, seconds


def main(train):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--lr-adamw", type=float, default=0.003)
    parser.add_argument("--lr-muon", type=float, default=0.02)
    arguments = parser.parse_args()
    if arguments.steps < 2:
        parser.error(f"--steps is {arguments.steps}: give at least 2")

    text = TEXT.read_text("utf-8")
    alphabet = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = np.array([alphabet[character] for character in text])
    cut = len(tokens) * 9 // 10
    results = {}
    for name, rate in (("adamw", arguments.lr_adamw), ("muonium", arguments.lr_muon)):
        losses, seconds = train(name, rate, arguments.steps, tokens[:cut], tokens[cut:], len(alphabet))
        results[name] = losses
        print(f"{name:8} lr {rate:g}: loss {losses[-1][1]:.3f} after {arguments.steps} steps, "
              f"{seconds:.0f} s", flush=True)
    goal = results["adamw"][-1][1]
    reached = next((step for step, loss in results["muonium"] if loss <= goal), None)
    print(f"muonium reaches AdamW's final loss in {reached} steps" if reached
          else "muonium does not reach AdamW's final loss: try other rates")


if __name__ == "__main__":
    main(train)

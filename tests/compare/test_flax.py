"""A small model of Flax, trained with optax.contrib.muon and with muonium.optax.muon: the curves
are the same. With nnx.Optimizer, and as a plain tree."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import beside  # noqa: F401, finds the package

import muonium.optax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_default_matmul_precision", "highest")


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(17, 24, rngs=rngs)
        self.norm = nnx.LayerNorm(24, rngs=rngs)
        self.up = nnx.Linear(24, 48, rngs=rngs)
        self.down = nnx.Linear(48, 24, rngs=rngs)
        self.head = nnx.Linear(24, 17, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        x = x + self.down(nnx.gelu(self.up(self.norm(x))))
        return self.head(x)


def loss_of(model, tokens):
    logits = model(tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def curve(muon, plain):
    model = Model(nnx.Rngs(0))
    transform = muon(0.02, weight_decay=0.01)
    random = np.random.default_rng(0)
    # Sequences with a rule, so that there is something to learn.
    data = [jnp.asarray((random.integers(17, size=(8, 1)) + 3 * np.arange(9)) % 17)
            for _ in range(60)]
    losses = []
    if plain:
        graph, params = nnx.split(model)

        @jax.jit
        def step(params, state, tokens):
            loss, grads = jax.value_and_grad(
                lambda p: loss_of(nnx.merge(graph, p), tokens))(params)
            updates, state = transform.update(grads, state, params)
            return optax.apply_updates(params, updates), state, loss

        state = transform.init(params)
        for tokens in data:
            params, state, loss = step(params, state, tokens)
            losses.append(float(loss))
        return np.array(losses)

    optimizer = nnx.Optimizer(model, transform, wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, tokens):
        loss, grads = nnx.value_and_grad(loss_of)(model, tokens)
        optimizer.update(model, grads)
        return loss

    for tokens in data:
        losses.append(float(step(model, optimizer, tokens)))
    return np.array(losses)


@pytest.mark.parametrize("plain", [False, True], ids=["nnx", "tree"])
def test_curves(plain):
    theirs = curve(optax.contrib.muon, plain)
    ours = curve(muonium.optax.muon, plain)
    assert theirs[-1] < theirs[0] / 2
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)

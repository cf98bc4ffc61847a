"""Muonium: the Muon optimizer for CPUs.

    muonium.orthogonalize(x)              the nearest orthogonal matrix of an array
    muonium.Optimizer(params)             Muon and AdamW over a dict of arrays
    muonium.torch.Muon(params)            the same as a torch.optim.Optimizer
    muonium.optax.muon(learning_rate)     the same as a transformation of Optax
    muonium.jax.orthogonalize(x)          a function of JAX: under jit, vmap, scan, shard_map
    muonium.route(shapes)                 which parameters get Muon, and why
    muonium.polar_express(steps)          coefficients; presets() has the published ones
    muonium.info()                        version, kernels, threads

Errors of the library become exceptions with its message: ValueError, TypeError,
MemoryError, OSError, ArithmeticError and NonFiniteError. NumPy is needed by
orthogonalize alone, PyTorch by muonium.torch alone, JAX and Optax by muonium.jax and
muonium.optax: pip install "muonium[numpy]", "muonium[torch]" and "muonium[jax]". Without PyTorch
hasattr(muonium, "torch") is False, and likewise for the others.
"""

from typing import TYPE_CHECKING

from ._functions import (Certificate, direct_sets, info, orthogonalize, polar_cubic, polar_express,
                         presets, recipes, route, set_threads, threads)
from ._handle import Report
from ._library import LibraryError, NonFiniteError, library
from ._optimizer import Optimizer

__version__: str = library.muonium_version().decode()

__all__ = ["Certificate", "LibraryError", "NonFiniteError", "Optimizer", "Report", "direct_sets",
           "info", "orthogonalize", "polar_cubic", "polar_express", "presets", "recipes", "route",
           "set_threads", "threads"]


if TYPE_CHECKING:
    from . import jax as jax
    from . import optax as optax
    from . import torch as torch
else:  # out of sight of checkers, which would take it for permission to ask for anything
    def __getattr__(name):
        if name not in ("jax", "optax", "torch"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        try:
            return importlib.import_module("." + name, __name__)  # when first asked for
        except Exception as error:  # hasattr expects this kind
            raise AttributeError(f"muonium.{name} cannot be imported: {error}") from error

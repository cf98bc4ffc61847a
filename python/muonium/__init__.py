"""Muonium: the Muon optimizer for CPUs.

    muonium.orthogonalize(x)              the nearest orthogonal matrix of an array
    muonium.Optimizer(params)             Muon and AdamW over a dict of arrays
    muonium.torch.Muon(params)            the same as a torch.optim.Optimizer
    muonium.route(shapes)                 which parameters get Muon, and why
    muonium.polar_express(steps)          coefficients; presets() has the published ones
    muonium.info()                        version, kernels, threads

Errors of the library become exceptions with its message: ValueError, TypeError,
MemoryError, OSError, ArithmeticError and NonFiniteError. NumPy is needed by
orthogonalize alone, PyTorch by muonium.torch alone.
"""

import importlib

from ._functions import (Certificate, direct_sets, info, orthogonalize, polar_cubic, polar_express,
                         presets, recipes, route, set_threads, threads)
from ._handle import Report
from ._library import LibraryError, NonFiniteError, library
from ._optimizer import Optimizer

__version__ = library.muonium_version().decode()

__all__ = ["Certificate", "LibraryError", "NonFiniteError", "Optimizer", "Report", "direct_sets",
           "info", "orthogonalize", "polar_cubic", "polar_express", "presets", "recipes", "route",
           "set_threads", "threads"]


def __getattr__(name):
    if name == "torch":  # imported when first asked for
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Muon for PyTorch, computed on the CPU.

    optimizer = muonium.torch.Muon(model.named_parameters(), lr=1e-3)

takes the place of torch.optim.AdamW or torch.optim.Muon: matrices get Muon, everything
else AdamW, in one call of the library per step, whatever the number of parameters.
"""

from .._library import missing

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise missing("muonium.torch", "PyTorch", "torch") from None
del torch

from ._muon import Muon

__all__ = ["Muon"]

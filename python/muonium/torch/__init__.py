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

from ._factory import MuonFactory, parameter_groups
from ._muon import Muon
from ._offload import OffloadMuon
from ._orthogonalize import newton_schulz, orthogonalize

for _public in (Muon, MuonFactory, OffloadMuon, newton_schulz, orthogonalize, parameter_groups):
    _public.__module__ = __name__  # where users, pickles and the documentation look for them
del _public

__all__ = ["Muon", "MuonFactory", "OffloadMuon", "newton_schulz", "orthogonalize", "parameter_groups"]

"""MuonFactory: makes the optimizer from a model, for trainers that ask for a factory."""

from typing import Any, Dict, List

import torch

from ._muon import Muon

# Their weights are (in, out).
_IN_OUT = ("Conv1D",)


def _heads_of(model: torch.nn.Module) -> List[torch.nn.Module]:
    """The output heads that a model of transformers names."""
    found = getattr(model, "get_output_embeddings", lambda: None)()
    return [found] if isinstance(found, torch.nn.Module) else []


def parameter_groups(model: torch.nn.Module) -> List[Dict[str, Any]]:
    """Groups for Muon: embeddings and heads by their modules, whatever their names; kernels that
    are (in, out); everything else. Biases and norms have no weight decay.

        optimizer = muonium.torch.Muon(muonium.torch.parameter_groups(model), lr=3e-4,
                                       recipe="muonium")
    """
    embeddings, in_out = set(), set()
    for module in [*model.modules(), *_heads_of(model)]:
        own = {id(p) for p in module.parameters(recurse=False)}
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            embeddings |= own
        elif type(module).__name__ in _IN_OUT:
            in_out |= own
    for head in _heads_of(model):
        embeddings |= {id(p) for p in head.parameters(recurse=False) if p.ndim >= 2}
    groups: Dict[str, Dict[str, Any]] = {
        "embeddings": {"params": [], "use_muon": False},
        "in_out": {"params": [], "kernels_in_out": True},
        "matrices": {"params": []},
        "rest": {"params": [], "weight_decay": 0.0, "adam_weight_decay": 0.0},
    }
    for name, p in model.named_parameters():
        if p.requires_grad:
            kind = ("rest" if p.ndim < 2 else "embeddings" if id(p) in embeddings
                    else "in_out" if id(p) in in_out else "matrices")
            groups[kind]["params"].append((name, p))
    return [group for group in groups.values() if group["params"]]


class MuonFactory:
    """Makes a Muon from a model, as the Trainer of transformers and axolotl ask for it:

        trainer = transformers.Trainer(
            model, arguments, train_dataset=data,
            optimizer_cls_and_kwargs=(muonium.torch.MuonFactory, {"lr": 3e-4}))

    An optimizer class in that place gets tensors without names, and takes embeddings and output
    heads for matrices of the hidden layers. The factory sees the model: see parameter_groups. The
    keywords are those of Muon; the recipe is "muonium" unless they say otherwise. Its steps are as
    large as AdamW's, so that the learning rate can stay. lr and weight_decay that are not given
    come from the training arguments, where they are passed. The Trainer passes none: lr is required.
    """

    def __init__(self, **options: Any):
        self.options = options

    def __call__(self, model: torch.nn.Module, training_arguments: Any = None,
                 **options: Any) -> Muon:
        """The optimizer for a model."""
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"the model is of type {type(model).__name__}: use a torch.nn.Module")
        given = {"recipe": "muonium", **self.options, **options}
        for name, told in (("lr", "learning_rate"), ("weight_decay", "weight_decay")):
            value = getattr(training_arguments, told, None)
            if name not in given and value is not None:
                given[name] = value
        if given.get("lr") is None:
            raise TypeError("lr is missing: the Trainer of transformers passes none to a factory. Use "
                            "optimizer_cls_and_kwargs=(MuonFactory, {\"lr\": arguments.learning_rate})")
        return Muon(parameter_groups(model), **given)

"""The names and shapes of tests/optimizer/test_routing_families.c beside real models, and the routes
that our own recipe gives to all of their parameters."""
import re

import pytest
import timm
import torch
import torchvision

from beside import ROOT

import muonium

MODELS = {
    "vit": [lambda: timm.create_model("deit_base_distilled_patch16_224"),
            lambda: timm.create_model("vit_base_patch16_224", init_values=0.1),
            lambda: torchvision.models.vit_b_16()],
    "convnext": [lambda: timm.create_model("convnext_tiny")],
    "resnet": [lambda: torchvision.models.resnet50(), lambda: timm.create_model("resnet50")],
}
ROUTES = {"A": "adam", "V": "adam", "M": "muon", "ADAM": "adam", "MUON": "muon"}


def families():
    """{family: {name: (shape, route)}} of the table in C."""
    text = (ROOT / "tests/optimizer/test_routing_families.c").read_text()
    found = {}
    for family, body in re.findall(r"static const named (\w+)\[\] = {(.*?)\n};", text, re.S):
        found[family] = {}
        for kind, name, rest in re.findall(r'\b([AMV]|T3|T4)\(\s*"([^"]+)",([^)]*)\)', body):
            *sizes, last = [part.strip() for part in rest.split(",")]
            sizes, route = (sizes, ROUTES[last]) if last in ROUTES else (
                [*sizes, last], ROUTES.get(kind, "experts"))
            found[family][name] = (tuple(int(n) for n in sizes if n.isdigit()), route)
    return found


def kind_of(name, shape):
    """A name without its numbers: one layer stands for all."""
    return re.sub(r"\d+", "#", name), len(shape)


def parameters(make):
    with torch.device("meta"):
        return {name: tuple(p.shape) for name, p in make().named_parameters()}


@pytest.mark.parametrize("family", MODELS)
def test_the_table_has_real_names_and_shapes(family):
    """All but the names of Hugging Face, whose models are not in these packages."""
    real = {}
    for make in MODELS[family]:
        real.update(parameters(make))
    table = families()[family]
    foreign = ("vit.", "convnext.", "classifier.")
    wrong = {name: shape for name, (shape, _) in table.items()
             if not name.startswith(foreign) and real.get(name) != shape}
    assert len(table) > 5 and not wrong


@pytest.mark.parametrize("family", MODELS)
def test_every_layer_is_routed_like_the_one_in_the_table(family):
    wanted = {kind_of(name, shape): route for name, (shape, route) in families()[family].items()}
    for make in MODELS[family]:
        shapes, known = parameters(make), 0
        for report in muonium.route(shapes):
            route = wanted.get(kind_of(report.name, shapes[report.name]))
            known += route is not None
            assert report.optimizer == (route or report.optimizer), report
        assert known > 5


@pytest.mark.parametrize("model, heads", [
    ("vit_tiny_patch16_224", ["head.weight"]), ("convnext_atto", ["head.fc.weight"]),
    ("swin_tiny_patch4_window7_224", ["head.fc.weight"]), ("efficientnet_b0", ["classifier.weight"]),
    ("deit_tiny_distilled_patch16_224", ["head.weight", "head_dist.weight"]),
    ("mixer_s32_224", ["head.weight"]), ("mobilenetv3_small_050", ["classifier.weight"]),
    ("eva02_tiny_patch14_224", ["pos_embed", "patch_embed.proj.weight"])])
def test_heads_and_embeddings_of_models(model, heads):
    shapes = parameters(lambda: timm.create_model(model))
    routes = {report.name: report.optimizer for report in muonium.route(shapes)}
    assert all(routes[name] == "adam" for name in heads if name in routes), routes
    assert all(routes[name] == "adam" for name, shape in shapes.items() if len(shape) < 2)
    assert sum(route == "muon" for route in routes.values()) > 5

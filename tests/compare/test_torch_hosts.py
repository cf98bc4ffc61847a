"""muonium.torch inside the frameworks that people train with: transformers' Trainer, axolotl's
factories, Lightning and accelerate, each interrupted and resumed bit for bit.
"""
import copy
import logging
import types
import warnings

import accelerate
import lightning
import pytest
import torch
import transformers

import beside  # noqa: F401, finds the package

import muonium.torch

torch.set_num_threads(1)
warnings.filterwarnings("ignore", category=UserWarning, module="(lightning|torch|accelerate)")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
STEPS, SAVED = 8, 4


def gpt2():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=97, n_positions=16, n_embd=32, n_layer=2, n_head=2,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


def tokens(count=32):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(97, (count, 12), generator=generator)
    return [{"input_ids": row, "labels": row} for row in rows]


def assert_same_bits(model, other):
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters()))


def moved(model):
    return any(not torch.equal(p, q) for p, q in zip(model.parameters(), gpt2().parameters()))


# ---- the factory ----


def test_the_factory_tells_embeddings_by_their_modules():
    model = gpt2()
    optimizer = muonium.torch.MuonFactory()(model, lr=1e-3)
    routes = {report.name: report.optimizer for report in optimizer.report()}
    assert {name for name, route in routes.items() if route == "muon"} == {
        f"transformer.h.{i}.{name}.weight" for i in range(2)
        for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")}
    assert routes["transformer.wte.weight"] == "adam"  # which is the head, too
    assert len(routes) == len(list(model.parameters()))
    decays = {p: group["weight_decay"] for group in optimizer.param_groups
              for p in group["params"]}
    assert all((decays[p] == 0) == (p.ndim < 2) for p in decays)


def test_an_untied_head_and_an_odd_name():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Embedding(9, 16)
            self.b = torch.nn.Linear(16, 16)
            self.c = torch.nn.Linear(16, 9, bias=False)
            self.b.bias.requires_grad_(False)

        def get_output_embeddings(self):
            return self.c

    optimizer = muonium.torch.MuonFactory(lr=1e-3)(Model())
    assert {r.name: r.optimizer for r in optimizer.report()} == {
        "a.weight": "adam", "b.weight": "muon", "c.weight": "adam"}


def test_axolotl_passes_its_training_arguments():
    arguments = types.SimpleNamespace(learning_rate=2e-3, weight_decay=0.3)
    optimizer = muonium.torch.MuonFactory()(gpt2(), arguments, betas=(0.9, 0.95))
    assert {group["lr"] for group in optimizer.param_groups} == {2e-3}
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.3, 0.0}
    kept = muonium.torch.MuonFactory()(gpt2(), arguments, lr=1e-4, recipe="moonlight")
    assert {group["lr"] for group in kept.param_groups} == {1e-4}
    assert kept.param_groups[0]["recipe"] == "moonlight"


def test_repr_tells_recipe_counts_and_kernel():
    optimizer = muonium.torch.MuonFactory(recipe="moonlight")(gpt2(), lr=1e-3)
    routes = [report.optimizer for report in optimizer.report()]
    assert repr(optimizer).splitlines()[0] == (
        f"<Muon recipe moonlight: {routes.count('muon')} Muon and {routes.count('adam')} AdamW "
        f"parameters, kernel {muonium.info()['kernel']}>")
    assert routes.count("muon") == 8 and routes.count("adam") > 8


def test_the_factory_wants_a_model():
    with pytest.raises(TypeError, match="the model is of type list"):
        muonium.torch.MuonFactory()(list(gpt2().parameters()))


def test_the_factory_wants_a_learning_rate():
    """The default of a recipe is no rate for every model, and the Trainer passes no arguments."""
    with pytest.raises(TypeError, match="lr is missing"):
        muonium.torch.MuonFactory()(gpt2())


# ---- transformers ----


def trainer(path, resume=None):
    arguments = transformers.TrainingArguments(
        str(path), max_steps=STEPS, per_device_train_batch_size=4, save_steps=SAVED,
        save_strategy="steps", logging_strategy="no", use_cpu=True, report_to=[],
        disable_tqdm=True, seed=1)
    made = transformers.Trainer(
        gpt2(), arguments, train_dataset=tokens(),
        optimizer_cls_and_kwargs=(muonium.torch.MuonFactory, {"lr": 3e-3, "weight_decay": 0.1}))
    made.train(resume_from_checkpoint=resume)
    return made


def test_the_trainer_of_transformers_resumes(tmp_path):
    whole = trainer(tmp_path)
    optimizer = whole.optimizer.optimizer
    assert isinstance(optimizer, muonium.torch.Muon)
    assert optimizer.counters()["steps"] == STEPS and optimizer.counters()["muon"] == 8
    assert moved(whole.model)
    again = trainer(tmp_path, resume=str(tmp_path / f"checkpoint-{SAVED}"))
    assert again.optimizer.optimizer.counters()["steps"] == STEPS - SAVED
    assert_same_bits(whole.model, again.model)


# ---- Lightning ----


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = gpt2()

    def training_step(self, batch, index):
        """Lightning begins the epoch again after a checkpoint: the data follow the step."""
        rows = tokens()[4 * self.global_step:4 * self.global_step + 4]
        return self.model(**torch.utils.data.default_collate(rows)).loss

    def configure_optimizers(self):
        optimizer = muonium.torch.Muon(self.named_parameters(), lr=3e-3, recipe="muonium")
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=STEPS)
        return {"optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def test_lightning_resumes(tmp_path):
    def fit(steps, resume=None):
        module = Module()
        made = lightning.Trainer(max_steps=steps, accelerator="cpu", logger=False,
                                 enable_progress_bar=False, enable_model_summary=False,
                                 enable_checkpointing=False, default_root_dir=tmp_path,
                                 gradient_clip_val=1.0)
        made.fit(module, torch.utils.data.DataLoader(tokens(4 * SAVED), batch_size=4), ckpt_path=resume)
        return module, made

    whole, _ = fit(STEPS)
    assert moved(whole.model)
    _, half = fit(SAVED)
    half.save_checkpoint(tmp_path / "half.ckpt")
    again, _ = fit(STEPS, str(tmp_path / "half.ckpt"))
    assert_same_bits(whole, again)


# ---- accelerate ----


def test_accelerate_resumes(tmp_path):
    def train(first, last, path=None):
        host = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = gpt2()
        optimizer = muonium.torch.Muon(muonium.torch.parameter_groups(model), lr=3e-3,
                                       recipe="muonium")
        model, optimizer = host.prepare(model, optimizer)
        if path:
            host.load_state(str(path))
        for step in range(first, last):
            for batch in (tokens()[2 * step:2 * step + 1], tokens()[2 * step + 1:2 * step + 2]):
                with host.accumulate(model):
                    loss = model(**{key: value[None] for key, value in batch[0].items()}).loss
                    host.backward(loss)
                    if host.sync_gradients:
                        host.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
        return host, model

    whole = train(0, STEPS)[1]
    assert moved(whole)
    host, _ = train(0, SAVED)
    host.save_state(str(tmp_path))
    assert_same_bits(whole, train(SAVED, STEPS, tmp_path)[1])


# ---- distributed data parallel ----


def test_parameters_that_get_no_gradient_stay():
    """As DistributedDataParallel leaves unused parameters, and as zero_grad(set_to_none)."""
    model, other = gpt2(), gpt2()
    optimizer = muonium.torch.MuonFactory()(model, lr=3e-3)
    for batch in tokens(3):
        optimizer.zero_grad()
        model(**{key: value[None] for key, value in batch.items()}).loss.backward()
        model.transformer.h[1].mlp.c_fc.weight.grad = None
        optimizer.step()
    apart = [name for (name, p), q in zip(model.named_parameters(), other.parameters())
             if torch.equal(p, q)]
    assert apart == ["transformer.h.1.mlp.c_fc.weight"]
    assert copy.deepcopy(optimizer.state_dict())["state"]

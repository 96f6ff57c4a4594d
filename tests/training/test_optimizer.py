"""The groups that decay, and what every optimizer must do: decay them, learn, and go on as if never cut short."""

import io
import os
import signal
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from builder import build, registry
from builder.experiments.train import Stopped
from builder.training.optimizer import decay_groups, parts
from tests.tiny_run import MOE, checkpoint, only_run, plant, resumed, rows, same, spec_of, trained

MODELS = {
    "tied": [],
    "untied": ["model.tie_embeddings=false"],
    "biases": ["model.ffn.bias=true", "model.head.bias=true", "model.tie_embeddings=false"],
    "layernorm": ["model/norm=layernorm"],
    "learned": ["model/position=learned"],
    "mlp": ["model/ffn=mlp", "model.ffn.d_ff=32"],
    "post_norm": ["model/block=post_norm"],
}
OPTIMIZERS = registry.names("optimizer")


def made(name, model, **knobs):
    kind = registry.find("optimizer", name)
    return kind.build(kind.Config(**knobs), model)


def gradients(model, seed):
    """Gives every parameter a gradient, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


# groups


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_every_parameter_is_in_one_group_and_only_matrices_decay(tmp_path, options):
    model = build(spec_of(tmp_path, *options).model, seed=0)
    groups = decay_groups(model, 0.1)
    members = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(members) == sorted(id(parameter) for parameter in model.parameters())  # a tied one comes once
    for group in groups:
        for parameter in group["params"]:
            assert group["weight_decay"] == (0.1 if parameter.ndim >= 2 else 0.0)
    assert {id(model.embedding.weight), id(model.head.weight)} <= set(members)


def test_what_is_not_trained_is_in_no_group(tmp_path):
    model = build(spec_of(tmp_path).model, seed=0)
    model.embedding.weight.requires_grad = False
    members = [id(parameter) for group in decay_groups(model, 0.1) for parameter in group["params"]]
    assert id(model.embedding.weight) not in members
    assert len(members) == len(list(model.parameters())) - 1


def test_knobs_of_a_part_come_after_those_of_all_and_equal_ones_share_groups(tmp_path):
    model = build(spec_of(tmp_path, *MODELS["biases"]).model, seed=0)
    groups = decay_groups(model, 0.1, {"embedding": {"lr": 1.0}, "head": {"lr": 1.0}, "other": {}})
    assert [(group.get("lr"), group["weight_decay"]) for group in groups] == [
        (None, 0.1),
        (None, 0.0),
        (1.0, 0.1),
        (1.0, 0.0),
    ]
    assert [id(p) for p in groups[2]["params"]] == [id(model.embedding.weight), id(model.head.weight)]
    assert [id(p) for p in groups[3]["params"]] == [id(model.head.bias)]


@pytest.mark.parametrize("tied", [True, False])
def test_the_parts_of_a_model_of_transformers(tied):
    config = LlamaConfig(hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=11)
    config.tie_word_embeddings = tied
    model = LlamaForCausalLM(config)
    found = {id(parameter): part for parameter, part, _ in parts(model)}
    assert len(found) == len(list(model.parameters()))
    assert found[id(model.model.embed_tokens.weight)] == "embedding"
    assert found[id(model.lm_head.weight)] == ("embedding" if tied else "head")
    assert found[id(model.model.layers[0].self_attn.q_proj.weight)] == "map"
    assert sorted(found.values()).count("map") == 7


# every optimizer


@pytest.mark.parametrize("options", [*MODELS.values(), MOE], ids=[*MODELS, "moe"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_holds_each_parameter_once_and_decays_what_decays(tmp_path, name, options):
    """Where no gradient says otherwise, a step is decay alone, of what `decay_groups` says, once."""
    model = build(spec_of(tmp_path, *options).model, seed=0, dtype=torch.float64)
    shrinks = {id(p): bool(group["weight_decay"]) for group in decay_groups(model, 0.1) for p in group["params"]}
    optimizer, before = made(name, model, lr=0.25, weight_decay=0.5), weights(model)
    assert sorted(id(p) for group in optimizer.param_groups for p in group["params"]) == sorted(shrinks)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for key, parameter in model.named_parameters():
        factor = 1 - 0.25 * 0.5 if shrinks[id(parameter)] else 1.0
        torch.testing.assert_close(parameter.detach(), factor * before[key], atol=1e-15, rtol=1e-14)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_group_has_a_rate_that_a_schedule_scales(tmp_path, name):
    model = build(spec_of(tmp_path).model, seed=0)
    optimizer, before = made(name, model), weights(model)
    rates = [group["lr"] for group in optimizer.param_groups]
    assert all(rate > 0 for rate in rates)
    factors = [0.0, 0.5, 0.25]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factors.__getitem__)
    for step in range(2):
        assert [group["lr"] for group in optimizer.param_groups] == [factors[step] * rate for rate in rates]
        gradients(model, step)
        optimizer.step()
        moved = [key for key, parameter in model.named_parameters() if not torch.equal(parameter, before[key])]
        assert moved == ([] if step == 0 else list(before)), "a rate of 0 moves nothing, and another everything"
        scheduler.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_has_no_gradient_stays_and_a_closure_gives_them(tmp_path, name):
    model = build(spec_of(tmp_path).model, seed=0)
    optimizer, before = made(name, model), weights(model)
    still = "layers.0.mixer.q.weight"

    def closure():
        assert torch.is_grad_enabled()
        gradients(model, 0)
        model.get_parameter(still).grad = None
        return torch.tensor(2.0)

    assert optimizer.step(closure) == 2.0
    assert [key for key, parameter in model.named_parameters() if torch.equal(parameter, before[key])] == [still]


def steps(model, optimizer, first, last):
    """Some steps under a schedule, which knows where it is."""
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1), last_epoch=first - 1)
    for step in range(first, last):
        gradients(model, step)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options", [[], MOE], ids=["dense", "moe"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_goes_on_from_what_was_saved_as_if_never_cut(tmp_path, name, options, dtype):
    spec, file = spec_of(tmp_path, *options).model, io.BytesIO()
    whole, model = (build(spec, seed=0, dtype=dtype) for _ in range(2))
    optimizer = made(name, whole)
    steps(whole, optimizer, 0, 6)

    first = made(name, model)
    steps(model, first, 0, 3)
    torch.save({"model": model.state_dict(), "optimizer": first.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)  # plain tensors and Python
    ends = {}
    for remembers in (True, False):
        model = build(spec, seed=1, dtype=dtype)
        model.load_state_dict(saved["model"])
        second = made(name, model)
        if remembers:
            second.load_state_dict(saved["optimizer"])
        else:
            for group in second.param_groups:
                group["initial_lr"] = group["lr"]
        steps(model, second, 3, 6)
        ends[remembers] = same(weights(model), weights(whole))
        assert same(second.state_dict()["state"], optimizer.state_dict()["state"]) == remembers
    assert ends == {True: True, False: False}
    assert all(parameter.isfinite().all() and parameter.dtype == dtype for parameter in whole.parameters())


@pytest.mark.parametrize("options", [[], MOE], ids=["dense", "moe"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_learns_and_unlearns_when_gradients_are_turned_round(tmp_path, name, options):
    tokens = torch.randint(20, (4, 17), generator=torch.Generator().manual_seed(0))
    after = {}
    for sign in (1, -1):
        model = build(spec_of(tmp_path, *options).model, seed=0)
        optimizer = made(name, model)
        losses = []
        for _ in range(20):
            output = model(tokens[:, :-1])
            loss = F.cross_entropy(output.logits.flatten(0, 1), tokens[:, 1:].flatten())
            losses.append(loss.item())
            optimizer.zero_grad()
            (sign * loss).backward()
            optimizer.step()
        after[sign] = losses[-1] - losses[0]
    assert after[1] < -0.02 and after[-1] > 0.02, after


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_that_was_cut_short_ends_as_the_whole_one(tmp_path, monkeypatch, name):
    short = [f"optimizer={name}", "schedule=constant", "trainer.max_steps=6", "model.tie_embeddings=false"]
    folders = [tmp_path / "whole", tmp_path / "cut"]
    for folder in folders:
        folder.mkdir()
    whole = trained(folders[0], *short).path
    with monkeypatch.context() as patch:
        plant(patch, 3, partial(os.kill, os.getpid(), signal.SIGINT))
        with pytest.raises(Stopped, match="after step 3"):
            trained(folders[1], *short)
    path = resumed(only_run(folders[1])).path
    for key in ("state_dict", "optimizer_states", "lr_schedulers"):
        assert same(checkpoint(path)[key], checkpoint(whole)[key]), key
    assert rows(path) == rows(whole)

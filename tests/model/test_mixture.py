"""Mixtures of experts in a whole model: what training reports, what decode never does, recomputation, precision."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from builder.components.router import Router
from builder.model.assemble import build
from builder.model.grouped import GroupedLinear
from builder.training.optimizer import decay_groups
from tests.choices import slot

X, K = 8, 2
BALANCE = {"aux_loss": 0.01, "z_loss": 0.001, "sequence_loss": 0.1, "bias_speed": 0.01}
GROUPED = {"name": "grouped_topk", "n_groups": 4, "top_groups": 2, "score": "sigmoid"}
LIMITS = {
    "drop": {"capacity_factor": 0.7, "expert": {"name": "mlp", "d_ff": 16}, "router": {"name": "topk", "bias": True}},
    "reroute": {"capacity_factor": 0.7, "overflow": "reroute"},
    "groups": {"router": GROUPED, "balance": BALANCE, "shared": {"name": "glu", "d_ff": 16}, "shared_gate": True},
}


@pytest.fixture
def mixed(tiny):
    """mixed(**knobs): the tiny model with a mixture in each of its layers."""
    return lambda dtype=torch.float32, n_layers=2, **knobs: tiny(
        dtype, n_layers=n_layers, ffn=slot("ffn", "moe", **knobs)
    )


def experts_of(model):
    return [layer.ffn for layer in model.layers]


def trained(model, tokens, **arguments):
    """(the logits, what layers reported, every gradient of the whole loss) of one pass in training."""
    output = model.train()(tokens, **arguments)
    loss = cross_entropy(output.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()) + sum(output.aux.losses.values())
    model.zero_grad()
    loss.backward()
    return output.logits.detach(), output.aux, {name: p.grad.clone() for name, p in model.named_parameters()}


# what it holds


def test_names_and_shapes(spec):
    knobs = {"shared": {"name": "glu", "d_ff": 16}, "shared_gate": True, "balance": BALANCE}
    model = build(spec(ffn=slot("ffn", "moe", **knobs)), device="meta")
    held = {name.removeprefix("layers.1.ffn."): tuple(value.shape) for name, value in model.state_dict().items()}
    assert {name: shape for name, shape in held.items() if name.startswith(("router", "experts", "shared"))} == {
        "router.weight": (X, 32),
        "router.preference": (X,),
        "experts.gate.weight": (X, 24, 32),
        "experts.up.weight": (X, 24, 32),
        "experts.down.weight": (X, 32, 24),
        "shared.gate.weight": (16, 32),
        "shared.up.weight": (16, 32),
        "shared.down.weight": (32, 16),
        "shared_gate.weight": (1, 32),
    }


def test_every_expert_is_drawn_by_role(spec):
    moe = slot("ffn", "moe", expert={"name": "mlp", "d_ff": 64}, router={"name": "noisy_topk"})
    model = build(spec(ffn=moe, n_layers=8, init={"name": "depth_scaled", "std": 0.5}), seed=0)
    for module in experts_of(model):
        for weight, std in (
            (module.experts.up.weight, 0.5), (module.experts.down.weight, 0.5 * (2 * 8) ** -0.5),
            (module.router.weight, 0.5), (module.router.noise, 0.5),
        ):  # fmt: skip
            each = weight.flatten(1).std(dim=1) if weight.ndim == 3 else weight.std()
            assert (each / std - 1).abs().max() < 0.2
        assert (module.experts.up.bias == 0).all() and (module.experts.down.bias == 0).all()
        assert not torch.equal(module.experts.up.weight[0], module.experts.up.weight[1])


def test_a_pass_on_meta_has_its_shapes(spec):
    for knobs in LIMITS.values():
        model = build(spec(ffn=slot("ffn", "moe", **knobs)), device="meta").train()
        assert model(torch.zeros(2, 9, dtype=torch.int64, device="meta")).logits.shape == (2, 9, 37)


# what is reported


def test_each_layer_reports_losses_of_its_own_and_in_training_alone(mixed, ids):
    model, tokens = mixed(balance=BALANCE), ids(2, 9)
    _, aux, _ = trained(model, tokens)
    names = ("aux_loss", "z_loss", "sequence_loss")
    assert set(aux.losses) == {f"moe/{layer}/{name}" for layer in (0, 1) for name in names}
    assert all(loss.requires_grad for loss in aux.losses.values()) and list(aux.tallies) == experts_of(model)
    silent = model.eval()(tokens).aux
    assert not silent.losses and not silent.tallies


def test_a_loss_that_weighs_nothing_is_not_computed(mixed, ids):
    assert set(trained(mixed(), ids(2, 9))[1].losses) == {"moe/0/aux_loss", "moe/1/aux_loss"}
    assert not trained(mixed(balance=False), ids(2, 9))[1].losses


@pytest.mark.parametrize("name", ["aux_loss", "z_loss", "sequence_loss"])
def test_weights_weigh(mixed, ids, name):
    once, twice = (
        trained(mixed(balance={"bias_speed": 0.01, name: weight}), ids(2, 9))[1].losses for weight in (0.01, 0.02)
    )
    for layer in (0, 1):
        assert twice[f"moe/{layer}/{name}"].item() == pytest.approx(2 * once[f"moe/{layer}/{name}"].item(), rel=1e-5)


def test_padding_is_in_no_report(mixed, ids):
    model, tokens, pads = mixed(torch.float64, balance=BALANCE, capacity_factor=0.7), ids(2, 9), 4
    laid = torch.cat((ids(2, pads, seed=5), tokens), dim=1)
    real = torch.arange(9 + pads).expand(2, -1) >= pads
    found, expected = (trained(model, given, **more)[1] for given, more in
                       ((laid, {"attention_mask": real}), (tokens, {})))  # fmt: skip
    for name, loss in expected.losses.items():
        assert found.losses[name].item() == pytest.approx(loss.item(), abs=1e-12)
    for module in experts_of(model):
        assert torch.equal(found.tallies[module], expected.tallies[module])
        assert expected.tallies[module][:X].sum() == 2 * 9 * K


# decode


def test_what_training_drops_decode_never_drops(mixed, ids):
    limited, free, tokens = mixed(capacity_factor=0.5), mixed(), ids(3, 12)
    assert trained(limited, tokens)[1].tallies[limited.layers[0].ffn][-1] > 0, "in training it drops"
    limited.eval(), free.eval()
    with torch.no_grad():
        state, whole = limited.new_state(3, 12), limited(tokens).logits
        steps = torch.cat([limited(tokens[:, t : t + 1], state=state).logits for t in range(12)], dim=1)
        assert torch.equal(whole, free(tokens).logits)
        assert (steps - whole).abs().max() <= 1e-5


def test_a_capacity_of_evaluation_is_seen_in_decode(mixed, ids):
    model, tokens = mixed(eval_capacity_factor=0.5), ids(3, 12)
    with torch.no_grad():
        state, whole = model.new_state(3, 12), model(tokens).logits
        steps = torch.cat([model(tokens[:, t : t + 1], state=state).logits for t in range(12)], dim=1)
    assert (steps - whole).abs().max() > 1e-3


# preferences


def test_a_preference_is_a_buffer_that_no_optimizer_holds(mixed):
    model = mixed(balance=BALANCE)
    named = {name for name in model.state_dict() if name.endswith("preference")}
    assert named == {f"layers.{layer}.ffn.router.preference" for layer in (0, 1)}
    held = {id(parameter) for group in decay_groups(model, 0.1) for parameter in group["params"]}
    assert held == {id(parameter) for parameter in model.parameters()}
    assert not any(id(moe.router.preference) in held for moe in experts_of(model))


def test_a_bias_of_many_experts_does_not_decay(mixed):
    """(X, F) is a matrix by its shape, and a bias by what it does."""
    model = mixed(expert={"name": "mlp", "d_ff": 16})
    undecayed = {id(p) for group in decay_groups(model, 0.1) if not group["weight_decay"] for p in group["params"]}
    for moe in experts_of(model):
        assert {id(moe.experts.up.bias), id(moe.experts.down.bias)} <= undecayed
        assert not {id(moe.experts.up.weight), id(moe.experts.down.weight), id(moe.router.weight)} & undecayed


def test_only_settling_moves_a_preference(mixed, ids):
    model, tokens = mixed(balance=BALANCE), ids(2, 9)
    trained(model, tokens)
    model.eval()(tokens)
    assert all((moe.router.preference == 0).all() for moe in experts_of(model))
    _, aux, _ = trained(model, tokens)
    for moe in experts_of(model):
        counts = aux.tallies[moe][:X]
        moe.settle(aux.tallies[moe])
        assert (
            torch.allclose(moe.router.preference, 0.01 * (2 * 9 * K / X - counts).sign())
            and counts.unique().numel() > 1
        )


def test_settling_without_a_speed_moves_nothing(mixed, ids):
    model = mixed()
    _, aux, _ = trained(model, ids(2, 9))
    for moe in experts_of(model):
        moe.settle(aux.tallies[moe])
        assert moe.router.preference is None


def test_what_is_recomputed_is_counted_once(mixed, ids, monkeypatch):
    model, tokens = mixed(balance=BALANCE, capacity_factor=0.7), ids(2, 9)
    _, expected, wanted = trained(model, tokens)
    calls = []
    for index, layer in enumerate(model.layers):
        forward = layer.forward

        def again(x, ctx, forward=forward, index=index):
            calls.append(index)
            return forward(x, ctx)

        monkeypatch.setattr(
            layer, "forward", lambda x, ctx, again=again: checkpoint(again, x, ctx, use_reentrant=False)
        )
    _, found, gradients = trained(model, tokens)
    assert sorted(calls) == [0, 0, 1, 1], "each layer ran twice"
    for moe in experts_of(model):
        assert torch.equal(found.tallies[moe], expected.tallies[moe]) and (moe.router.preference == 0).all()
    assert all((gradients[name] - gradient).abs().max() <= 1e-6 for name, gradient in wanted.items())


# compilation and precision


@pytest.fixture
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("limit", LIMITS)
def test_a_training_pass_is_one_graph(mixed, ids, fresh, limit):
    model, plain, tokens = mixed(n_layers=1, **LIMITS[limit]), mixed(n_layers=1, **LIMITS[limit]), ids(2, 9)
    model.forward = torch.compile(model.forward, backend="eager", fullgraph=True)
    found, expected = trained(model, tokens), trained(plain, tokens)
    assert (found[0] - expected[0]).abs().max() <= 1e-5
    for name, gradient in expected[2].items():
        assert (found[2][name] - gradient).abs().max() <= 1e-5 * max(1, gradient.abs().max()), name
    for one, other in zip(experts_of(model), experts_of(plain), strict=True):
        assert torch.equal(found[1].tallies[one], expected[1].tallies[other])


def test_experts_run_in_bfloat16_under_autocast_and_routers_do_not(mixed, ids, monkeypatch):
    model, tokens, seen = mixed(shared={"name": "glu", "d_ff": 16}), ids(2, 9), {}
    for module in model.modules():
        if isinstance(module, GroupedLinear):
            module.register_forward_hook(lambda module, _, y: seen.setdefault("experts", set()).add(y.dtype))
    monkeypatch.setattr(Router, "logits", watched(Router.logits, seen))
    exact, *_ = trained(model, tokens)
    assert seen == {"experts": {torch.float32}, "logits": {torch.float32}}
    seen.clear()
    with torch.autocast("cpu", torch.bfloat16):
        logits, aux, gradients = trained(model, tokens)
    assert seen == {"experts": {torch.bfloat16}, "logits": {torch.float32}}
    assert 0 < (logits - exact).abs().max() <= 0.1 * exact.abs().max()
    assert all(loss.dtype == torch.float32 for loss in aux.losses.values())
    assert all(gradient.dtype == torch.float32 and gradient.isfinite().all() for gradient in gradients.values())


def watched(logits, seen):
    def watching(self, x):
        found = logits(self, x)
        seen.setdefault("logits", set()).add(found.dtype)
        return found

    return watching


@pytest.mark.parametrize("limit", LIMITS)
def test_a_model_in_bfloat16_is_near_the_one_in_float32(mixed, ids, limit):
    tokens, narrow = ids(2, 9), mixed(torch.bfloat16, **LIMITS[limit])
    logits, _, gradients = trained(narrow, tokens)
    assert logits.dtype == torch.bfloat16 and logits.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    wide = mixed(torch.bfloat16, **LIMITS[limit]).float()
    assert (logits - trained(wide, tokens)[0]).abs().mean() <= 0.1 * logits.float().std()

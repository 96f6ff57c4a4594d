"""Compiled training (C37): one graph for each kind of layer, the same numbers and names, nothing left on the model."""

import copy
import shutil

import pytest
import torch
from torch._dynamo.utils import counters

from builder import build, generate
from builder.components.ffn.moe import MoE
from builder.model.context import Aux, Context
from builder.model.whole_batch import WholeBatch
from builder.training.compiled import compiled
from builder.training.losses import Losses
from builder.training.ranks import Ranks
from builder.training.recompute import recompute
from builder.training.stand_in import standing_in
from tests.tiny_run import MOE, spec_of

DEEP = "model.n_layers=12"
KINDS = {
    "one": [DEEP],
    "two": [DEEP, "+model.local=${model.attention}", "model.pattern=[local+ffn,attention+ffn]"],
    "experts": [*MOE, "model.n_layers=12", "model.moe.balance.z_loss=0.001"],
    "dropout": [DEEP, "model.block.dropout=0.1"],
    "bias": [DEEP, "model/position=t5"],
}
GRAPHS = {"one": 1, "two": 2, "experts": 2, "dropout": 1, "bias": 1}


class Graphs:
    """A backend that compiles nothing and counts what it was asked to compile."""

    def __init__(self):
        self.count = 0

    def __call__(self, graph, _):
        self.count += 1
        return graph.forward


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def made(tmp_path):
    """made(*overrides): (the spec of the tiny run, its model in training, a batch for it)."""

    def make(*overrides):
        spec = spec_of(tmp_path, "model.vocab_size=64", "model.deploy_length=16", *overrides)
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(0, 64, (2, spec.model.train_length), generator=generator)
        return spec, build(spec.model, seed=0).train(), tokens

    return make


def passed(model, tokens, forwards, aux=None):
    """(logits, what layers reported, every gradient) of a training pass in which `forwards` stand in."""
    torch.manual_seed(0)
    model.zero_grad()
    with standing_in(forwards):
        output = model(tokens, aux=aux)
    (output.logits.float().logsumexp(-1).sum() + sum(output.aux.losses.values())).backward()
    return output.logits.detach(), output.aux, {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("kinds", KINDS)
def test_alike_layers_run_one_graph(made, kinds):
    _, model, tokens = made(*KINDS[kinds])
    graphs = Graphs()
    forwards = compiled(model, "blocks", graphs)
    for _ in range(2):
        passed(model, tokens, forwards)
    assert graphs.count == GRAPHS[kinds] and not counters["graph_break"]


@pytest.mark.parametrize("counted", ["before", "in the pass"])
def test_layers_that_are_told_of_the_whole_batch_run_one_graph(made, counted):
    _, model, tokens = made(*KINDS["experts"], "model.n_layers=3")
    experts = [block.ffn for block in model.layers if isinstance(block.ffn, MoE)]
    asked = {module: torch.arange(4) + number for number, module in enumerate(experts)}
    choices = asked if counted == "before" else {}
    whole = WholeBatch(torch.tensor(0.5), torch.tensor(2.0), choices, over_ranks=Ranks().sum)
    graphs = Graphs()
    found, expected = (
        passed(model, tokens, forwards, aux=Aux(whole=whole))[1].losses
        for forwards in (compiled(model, "blocks", graphs), {})
    )
    assert graphs.count == 2 and not counters["graph_break"]
    assert all(torch.allclose(found[name], loss, atol=1e-6) for name, loss in expected.items())
    alone = passed(model, tokens, {})[1].losses
    assert (counted == "before") == (found["moe/2/aux_loss"] != alone["moe/2/aux_loss"]).item()


def test_layers_that_shared_what_is_made_in_a_pass_would_need_more_graphs(made, monkeypatch):
    _, model, tokens = made(*KINDS["one"])
    monkeypatch.setattr(Context, "apart", lambda self: self)
    graphs = Graphs()
    passed(model, tokens, compiled(model, "blocks", graphs))
    assert graphs.count == 2, "the first layer makes the angles of positions, and the others find them"


def test_layers_that_knew_their_number_would_need_more_graphs(made, monkeypatch):
    _, model, tokens = made("model.n_layers=2")
    for number, block in enumerate(model.layers):
        block.number = number
    forward = type(model.layers[0]).forward
    monkeypatch.setattr(
        type(model.layers[0]), "forward", lambda self, x, ctx: forward(self, x * (1 + self.number), ctx)
    )
    graphs = Graphs()
    passed(model, tokens, compiled(model, "blocks", graphs))
    assert graphs.count == 2


@pytest.mark.parametrize("mode, backend", [(True, "eager"), ("blocks", "aot_eager")])
@pytest.mark.parametrize("kinds", ["two", "experts", "bias"])
def test_numbers_are_those_of_the_plain_model(made, mode, backend, kinds):
    _, model, tokens = made(*KINDS[kinds], "model.n_layers=2")
    found = passed(model, tokens, compiled(model, mode, backend))
    expected = passed(model, tokens, {})
    assert (found[0] - expected[0]).abs().max() <= 1e-5
    assert found[1].losses.keys() == expected[1].losses.keys() and list(found[1].tallies) == list(expected[1].tallies)
    assert all(torch.allclose(found[1].losses[name], loss, atol=1e-6) for name, loss in expected[1].losses.items())
    assert all(torch.equal(found[1].tallies[module], tally) for module, tally in expected[1].tallies.items())
    for name, gradient in expected[2].items():
        assert (found[2][name] - gradient).abs().max() <= 1e-5 * max(1, gradient.abs().max()), name


@pytest.mark.parametrize("mode", [True, "blocks"])
def test_nothing_is_left_on_the_model(made, mode):
    _, model, tokens = made("model.n_layers=2")
    names, graphs = list(model.state_dict()), Graphs()
    forwards = compiled(model, mode, graphs)
    passed(model, tokens, forwards)
    count = graphs.count
    assert count and list(model.state_dict()) == names
    generate(model.eval(), tokens[:, :3], max_new_tokens=4)
    assert graphs.count == count, "generation isn't compiled"
    twin = copy.deepcopy(model)
    torch.nn.init.zeros_(twin.layers[0].mixer.o.weight)
    assert not torch.equal(twin(tokens).logits, model(tokens).logits), "a copy computes with its own weights"
    with pytest.raises(ValueError), standing_in(forwards):
        model(tokens[:, :0], attention_mask=tokens)
    assert not any("forward" in vars(module) for module in model.modules())


def test_a_plain_model_has_nothing_to_stand_in(made):
    _, model, _ = made()
    assert compiled(model, False) == {}


def test_hooks_of_blocks_run_outside_of_what_is_compiled(made):
    """As those of FSDP2 do, which gathers a block's weights before it runs."""
    _, model, tokens = made("model.n_layers=3")
    ran, graphs = [], Graphs()
    for index, block in enumerate(model.layers):
        block.register_forward_pre_hook(lambda *_, index=index: ran.append(index))
    passed(model, tokens, compiled(model, "blocks", graphs))
    assert ran == [0, 1, 2] and graphs.count == 1 and not counters["graph_break"]


def test_validation_has_a_graph_of_its_own_and_no_more(made):
    _, model, tokens = made(DEEP)
    graphs = Graphs()
    forwards = compiled(model, "blocks", graphs)
    for _ in range(2):
        passed(model.train(), tokens, forwards)
        with torch.inference_mode(), standing_in(forwards):
            found = model.eval()(tokens).logits
    assert graphs.count == 2
    assert (found - model(tokens).logits).abs().max() <= 1e-5


def test_two_models_share_no_graph(made):
    """A handful is kept for each code object: a row of runs in one process would use it up."""
    spec, _, tokens = made("model.n_layers=1")
    graphs = []
    for width in range(8, 8 * 11, 8):
        model = build(spec.model.model_copy(update={"d_model": width}), seed=0)
        graphs.append(Graphs())
        with standing_in(compiled(model, "blocks", graphs[-1])):
            model(tokens)
    assert [each.count for each in graphs] == [1] * 10


@pytest.mark.parametrize("mode, kinds", [(True, "experts"), ("blocks", "experts"), ("blocks", "bias")])
def test_what_is_compiled_may_be_recomputed(made, mode, kinds):
    spec, model, tokens = made(*KINDS[kinds], "model.n_layers=2")
    graphs = Graphs()
    forwards = recompute(model, spec.model.slots)
    found = passed(model, tokens, {**forwards, **compiled(model, mode, graphs)})
    assert graphs.count == (1 if mode is True else GRAPHS[kinds]) and not counters["graph_break"]
    expected = passed(model, tokens, {})
    assert (found[0] - expected[0]).abs().max() <= 1e-5
    assert all(torch.equal(found[1].tallies[module], tally) for module, tally in expected[1].tallies.items())
    for name, gradient in expected[2].items():
        assert (found[2][name] - gradient).abs().max() <= 1e-5 * max(1, gradient.abs().max()), name


def test_losses_are_those_of_the_spec(made, monkeypatch):
    asked = []
    monkeypatch.setattr("builder.training.losses.compiled", lambda model, mode: asked.append(mode) or {})
    for mode in (False, True, "blocks"):
        spec, model, _ = made(f"compile={str(mode).lower()}")
        Losses(model, spec.objective.component(spec.objective), spec)
    assert asked == [False, True, "blocks"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles for a CPU with g++")
@pytest.mark.parametrize("mode", [True, "blocks"])
def test_what_torch_compiles_computes_the_same(made, mode):
    _, model, tokens = made(*KINDS["experts"], "model.n_layers=3")
    found, expected = (passed(model, tokens, forwards) for forwards in (compiled(model, mode), {}))
    assert (found[0] - expected[0]).abs().max() <= 1e-4
    for name, gradient in expected[2].items():
        assert (found[2][name] - gradient).abs().max() <= 1e-4 * max(1, gradient.abs().max()), name
    assert isinstance(found[1], Aux)

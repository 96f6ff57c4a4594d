"""What a pass reports: logits only where they are asked for, and what layers tell under the number of each."""

import torch

from builder.model.context import Aux
from builder.model.whole_batch import WholeBatch


def test_hidden_may_be_had_without_logits(tiny, ids):
    model, ran = tiny(), []
    model.head.register_forward_hook(lambda *_: ran.append(1))
    whole, bare = model(ids(2, 7)), model(ids(2, 7), logits=False)
    assert len(ran) == 1 and bare.logits.shape == (2, 0, 37)
    assert torch.equal(bare.hidden, whole.hidden) and torch.equal(model.head(bare.hidden), whole.logits)


def test_layers_report_under_their_numbers(tiny, ids, monkeypatch):
    model = tiny()

    def telling(self, x, ctx):
        ctx.aux.losses["pull"] = x.square().mean()
        ctx.aux.stats["norm/size"] = x.detach().abs().mean()
        ctx.aux.tallies[self] = torch.ones(1, dtype=torch.int64)
        return forward(self, x, ctx)

    block = type(model.layers[0])
    forward = block.forward
    monkeypatch.setattr(block, "forward", telling)
    aux = model(ids(2, 7)).aux
    assert list(aux.losses) == ["pull/0", "pull/1"] and list(aux.stats) == ["norm/0/size", "norm/1/size"]
    assert list(aux.tallies) == list(model.layers)
    assert aux.losses["pull/0"] != aux.losses["pull/1"]


def test_what_was_reported_before_a_pass_stays(tiny, ids):
    kept = {"earlier": torch.ones(())}
    aux = Aux(losses=dict(kept), shapes=[])
    assert tiny()(ids(2, 7), aux=aux).aux is aux and aux.losses == kept
    assert {line.layer for line in aux.shapes} == {None, 0, 1}


def test_a_layer_is_told_of_its_own_choices(tiny):
    first, second = tiny().layers
    told = {first.ffn: torch.tensor([1, 2]), second.ffn: torch.tensor([3, 4])}
    whole = WholeBatch(torch.ones(()), torch.ones(()), told, over_ranks=lambda here: 2 * here)
    here = torch.tensor([5, 6])
    for layer in (first, second):
        narrow = Aux(whole=whole).empty(layer).whole
        assert torch.equal(narrow.chosen(layer.ffn, here), told[layer.ffn]) and not narrow.choices
    alone = WholeBatch(torch.ones(()), torch.ones(()), over_ranks=lambda here: 2 * here).of(first)
    assert torch.equal(alone.chosen(first.ffn, here), 2 * here)
    assert Aux().empty(first).whole is None

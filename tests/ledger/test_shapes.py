"""The shape ledger: chapter 3.7's table line by line, and the empty batch against a real run."""

import pytest
import torch

from builder.ledger import ledger
from builder.model.assemble import build
from builder.model.context import Aux

# (tensor, shape) of chapter 3.7 for B 2, n 4, d 8, H_q = H_kv 2, d_h 4
CHAPTER = [
    ("X", (2, 4, 8)),
    ("Q", (2, 2, 4, 4)),
    ("K, V", (2, 2, 4, 4)),
    ("scores", (2, 2, 4, 4)),
    ("weighted values", (2, 2, 4, 4)),
    ("concat", (2, 4, 8)),
    ("attention output", (2, 4, 8)),
    ("logits", (2, 4, 11)),
]


def lines(shapes):
    return [(line.tensor, line.sizes) for line in shapes if line.tensor != "ffn hidden"]


def test_the_table_of_the_chapter(architecture):
    assert lines(ledger(architecture(), batch_size=2).shapes) == CHAPTER
    assert lines(ledger(architecture(train_length=5, deploy_length=5), batch_size=2).shapes) != CHAPTER


VARIANTS = {
    "chapter": {},
    "grouped": {"attention": {"name": "gqa", "n_heads": 4, "n_kv_heads": 2, "d_head": 6}},
    "eager": {"attention": {"name": "gqa", "n_heads": 2, "kernel": "eager"}},
    "two kinds": {
        "pattern": ["attention+ffn", "local"],
        "n_layers": 4,
        "local": {"name": "gqa", "n_heads": 1},
        "position": {"name": "learned"},
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_an_empty_batch_has_the_shapes_of_a_real_one(architecture, variant, batch):
    spec = architecture(**VARIANTS[variant])
    aux = Aux(shapes=[])
    build(spec)(torch.zeros(batch, spec.train_length, dtype=torch.long), aux=aux)
    once = [line for line in aux.shapes if line.layer is None or line.layer < len(spec.pattern)]
    assert list(ledger(spec, batch_size=batch).shapes) == once
    for line in once:
        assert len(line.axes.replace("HE", "h").split()) == len(line.sizes), "an axis without a size"


def test_what_is_recorded_is_what_is_computed(architecture):
    spec = architecture(attention={"name": "gqa", "n_heads": 4, "n_kv_heads": 2, "d_head": 6})
    model, seen = build(spec), {}
    layer = model.layers[0]
    for name in ("q", "k", "o"):
        layer.mixer.get_submodule(name).register_forward_hook(lambda _, i, o, n=name: seen.update({n: (i[0], o)}))
    layer.ffn.down.register_forward_hook(lambda _, i, o: seen.update(down=(i[0], o)))
    aux = Aux(shapes=[])
    logits = model(torch.zeros(3, 4, dtype=torch.long), aux=aux).logits
    sizes = {line.tensor: line.sizes for line in aux.shapes}
    assert seen["q"][1].shape == (3, 4, 24) and sizes["Q"] == (3, 4, 4, 6)
    assert seen["k"][1].shape == (3, 4, 12) and sizes["K, V"] == (3, 2, 4, 6)
    assert sizes["concat"] == tuple(seen["o"][0].shape) and sizes["attention output"] == tuple(seen["o"][1].shape)
    assert sizes["ffn hidden"] == tuple(seen["down"][0].shape) and sizes["logits"] == tuple(logits.shape)


def test_a_run_that_keeps_no_ledger_records_nothing(architecture):
    assert build(architecture())(torch.zeros(1, 4, dtype=torch.long)).aux.shapes is None


def test_the_printed_ledger_holds_every_line(architecture):
    costs = ledger(architecture(), batch_size=2)
    for tensor, sizes in CHAPTER:
        assert tensor in str(costs) and str(list(sizes)) in str(costs)
    assert costs.to_dict()["shapes"][0]["tensor"] == "X"

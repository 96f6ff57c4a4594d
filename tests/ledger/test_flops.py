"""FLOPs against torch's own counter and a hand formula, for every component there is; state bytes by formula."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from builder import registry
from builder.ledger import ledger
from builder.model.assemble import build
from tests.choices import mixers, slot

B, T = 2, 4
SIZES = {"gqa": {"n_heads": 4, "n_kv_heads": 2, "d_head": 4}, "mlp": {"d_ff": 12}, "glu": {"d_ff": 12}}
CASES = [(room, name) for room in ("attention",) for name in mixers(room)]
CASES += [(room, name) for room in ("ffn", "position", "block", "norm") for name in registry.names(room)]


def sized(name):
    return {"name": name, **SIZES[name]}


def counted(spec, batch=B):
    """What torch counts below the dispatcher, a sequence; on the reference kernel, whose products it all sees."""
    model = build(spec, seed=0).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(batch, spec.train_length, dtype=torch.long))
    return counter.get_total_flops() / batch


def eager(knobs):
    """The reference kernel, where the component has a kernel to choose."""
    has = "kernel" in registry.find("attention", knobs["name"]).Config.model_fields
    return knobs | {"kernel": "eager"} if has else knobs


@pytest.mark.parametrize(("room", "name"), CASES, ids=lambda value: value)
def test_stated_equals_counted_for_every_component(architecture, room, name):
    usual = {"d_model": 32, "attention": slot("attention", "gqa"), "ffn": slot("ffn", "glu")}
    chosen = usual | {room: slot(room, name)}
    chosen["attention"] = eager(chosen["attention"])
    spec = architecture(n_layers=2, **chosen)
    assert build(spec).flops(T) == counted(spec) == counted(spec, batch=3)
    assert build(spec).flops(T) != counted(architecture(n_layers=3, **chosen))
    assert ledger(spec).flops_per_token == build(spec).flops(T) // T


@pytest.mark.parametrize("kernel", registry.names("kernel"))
def test_the_kernel_changes_no_count(architecture, kernel):
    spec = architecture(attention={"name": "gqa", "n_heads": 2, "kernel": kernel})
    assert build(spec).flops(T) == build(architecture()).flops(T)


@pytest.mark.parametrize(("ffn", "matrices"), [("mlp", 2), ("glu", 3)])
@pytest.mark.parametrize("length", [1, 4, 16])
@pytest.mark.parametrize("tied", [True, False])
def test_stated_equals_the_hand_formula(architecture, ffn, matrices, length, tied):
    d, heads, kv_heads, width, d_ff, rows, layers = 8, 4, 2, 4, 12, 11, 3
    spec = architecture(attention=sized("gqa"), ffn=sized(ffn), n_layers=layers, tie_embeddings=tied)
    projections = 2 * (2 * d * heads * width + 2 * d * kv_heads * width)
    scores_and_values = 2 * (2 * length * heads * width)  # every key for every query
    per_token = layers * (projections + scores_and_values + 2 * matrices * d * d_ff) + 2 * d * rows
    assert build(spec, device="meta").flops(length) == length * per_token


@pytest.mark.parametrize(("layers", "kv_heads", "width"), [(1, 2, 4), (3, 1, 6), (5, 4, 2)])
def test_state_bytes_are_two_l_k_e_floats_a_token(architecture, layers, kv_heads, width):
    attention = {"name": "gqa", "n_heads": 4, "n_kv_heads": kv_heads, "d_head": width}
    spec = architecture(attention=attention, n_layers=layers, deploy_length=9)
    costs = ledger(spec)
    assert costs.state_bytes_per_token == 2 * layers * kv_heads * width * 4
    assert costs.state_bytes == 9 * costs.state_bytes_per_token == build(spec).new_state(1, 9).bytes()
    assert build(spec).new_state(3, 9).bytes() == 3 * costs.state_bytes

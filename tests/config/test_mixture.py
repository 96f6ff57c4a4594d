"""What the config of a mixture of experts refuses: each rule with its place, its words and a remedy that loads."""

from collections.abc import Callable
from typing import Any

import pytest

from builder.components.ffn import FFN
from builder.load import load
from builder.registry import register
from tests.choices import slot

Edit = Callable[[dict[str, Any]], dict[str, Any]]
Refused = Callable[[dict[str, Any]], dict[str, Any]]
GLU = {"name": "glu", "d_ff": 64}
MOE = slot("ffn", "moe", n_experts=4, expert=GLU)
INNER = MOE | {"n_experts": 2, "top_k": 1}
ALONE = "it must transform each position alone"

# what breaks it, {path below the slot: (found, a part of the rule, a part of the fix)}, what mends it
BROKEN = {
    "a gate without a shared expert": (
        {"shared_gate": True},
        {"shared_gate": ("true", "no shared expert", "shared_gate=false")},
        {"shared_gate": True, "shared": GLU},
    ),
    "an overflow without a capacity": (
        {"overflow": "reroute"},
        {"overflow": ("'reroute'", "nothing overflows without a capacity", "capacity_factor=1.25")},
        {"overflow": "reroute", "capacity_factor": 1.25},
    ),
    "an overflow with a capacity of evaluation": (
        {"overflow": "drop it"},
        {"overflow": ("'drop it'", "'drop', 'reroute' or 'expand'", "")},
        {"overflow": "expand", "eval_capacity_factor": 1.25},
    ),
    "a mixture for an expert": (
        {"expert": INNER},
        {"expert.name": ("'moe'", ALONE, "glu")},
        {"expert": GLU},
    ),
    "a mixture that is shared": (
        {"shared": INNER},
        {"shared.name": ("'moe'", ALONE, "glu")},
        {"shared": GLU},
    ),
    "everything at once": (
        {"expert": INNER, "shared": INNER, "n_experts": 0},
        {
            "expert.name": ("'moe'", ALONE, ""),
            "shared.name": ("'moe'", ALONE, ""),
            "n_experts": ("0", "greater than 0", ""),
        },
        {},
    ),
    "a softmax over sigmoids": (
        {"router": {"name": "topk", "score": "sigmoid", "weights": "selected"}},
        {"router.weights": ("'selected'", "is a softmax over logits", "score=softmax")},
        {"router": {"name": "topk", "weights": "selected"}},
    ),
    "nothing that balances": (
        {"balance": {"aux_loss": 0.0}},
        {"balance.aux_loss": ("0.0", "nothing here balances", "balance=false")},
        {"balance": {"bias_speed": 0.001}},
    ),
    "a z-loss alone, which doesn't balance": (
        {"balance": {"z_loss": 0.001}},
        {"balance.aux_loss": ("nothing", "nothing here balances", "aux_loss=0.01")},
        {"balance": {"z_loss": 0.001, "sequence_loss": 0.01}},
    ),
    "a misspelt loss": (
        {"balance": {"aux_los": 0.01}},
        {"balance.aux_los": ("0.01", "keys: aux_loss, z_loss, sequence_loss, bias_speed", "balance.aux_loss?")},
        {},
    ),
    "a loss below zero": (
        {"balance": {"aux_loss": -0.01}},
        {"balance.aux_loss": ("-0.01", "greater than or equal to 0", "")},
        {"balance": False},
    ),
    "a balance that is no section": (
        {"balance": True},
        {"balance": ("true", "or false for none", "balance={aux_loss: 0.01}")},
        {"balance": False},
    ),
    "a jitter that may turn a sign": (
        {"router": {"name": "topk", "jitter": 1.0}},
        {"router.jitter": ("1.0", "less than 1", "")},
        {"router": {"name": "topk", "jitter": 0.9}},
    ),
    "a misspelt router": (
        {"router": {"name": "tpk"}},
        {"router.name": ("'tpk'", "topk", "router.name=topk")},
        {"router": {"name": "topk"}},
    ),
    "no experts": ({"n_experts": 0}, {"n_experts": ("0", "greater than 0", "")}, {"n_experts": 1}),
    "no choice": ({"top_k": 0}, {"top_k": ("0", "greater than 0", "")}, {"top_k": 1}),
    "no capacity at all": (
        {"capacity_factor": 0.0},
        {"capacity_factor": ("0.0", "greater than 0", "")},
        {"capacity_factor": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_told_and_the_fix_mends_it(edited: Edit, refused: Refused, case: str):
    broken, told, mended = BROKEN[case]
    found = refused(edited({"model.ffn": MOE | broken}))
    expected = {f"model.ffn.{key}": what for key, what in told.items()}
    assert set(expected) <= set(found)
    for path, (value, rule, fix) in expected.items():
        assert found[path].found == value and rule in found[path].rule and fix in found[path].fix, found[path]
    assert load(edited({"model.ffn": MOE | mended}))


def test_another_ffn_that_mixes_positions_is_refused_too(edited: Edit, refused: Refused, own_registry: None):
    @register("ffn", "mixing")
    class Mixing(FFN):
        alone = False

    found = refused(edited({"model.ffn": MOE | {"expert": {"name": "mixing"}}}))
    assert ALONE in found["model.ffn.expert.name"].rule


def test_the_defaults_drop_nothing_and_ask_for_a_balance(edited: Edit):
    slot: Any = load(edited({"model.ffn": {key: MOE[key] for key in MOE if key != "balance"}})).model.slots["ffn"]
    assert slot.capacity_factor is slot.eval_capacity_factor is slot.shared is slot.balance is None
    assert slot.overflow == "drop" and slot.scale == 1


def test_no_balance_on_purpose_is_kept_apart_from_none_said(edited: Edit):
    on_purpose, not_said = (load(edited({"model.ffn": MOE | {"balance": said}})) for said in (False, None))
    assert on_purpose.hash != not_said.hash
    assert load(on_purpose.to_dict()) == on_purpose and load(not_said.to_dict()) == not_said

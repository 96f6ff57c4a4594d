"""Each change of an architecture with what it costs, by formulas; together they are the whole difference."""

import pytest

from builder import ArchlabError, load
from builder.compare.changes import COSTS, difference
from builder.compare.reading import read_folder
from builder.ledger import ledger
from tests.compare.synthetic import config, write

D, F = 64, 128
SMALL = {"model__d_model": D, "model__n_layers": 2, "model__ffn__d_ff": F, "model__attention__n_heads": 4}
SMALL |= {"model__attention__n_kv_heads": 4}


def changed(tmp_path, **values):
    write(tmp_path / "a", **SMALL)
    write(tmp_path / "b", **SMALL | values)
    return difference(read_folder(tmp_path / "a"), read_folder(tmp_path / "b"))


def test_one_change(tmp_path):
    found = changed(tmp_path, model__ffn__d_ff=2 * F)
    (only,) = found.changes
    assert only.what == ("model.ffn.d_ff: 128 -> 256",)
    weights = 2 * 3 * D * F  # two layers, three maps each
    assert only.costs == {"params": weights, "active_params": weights, "flops_per_token": 2 * weights} | {
        "state_bytes_per_token": 0
    }


def test_changes_are_made_one_at_a_time_and_add_up(tmp_path):
    values = {"model__n_layers": 4, "model__attention__n_kv_heads": 1, "model__ffn__d_ff": 2 * F}
    found = changed(tmp_path, **values, optimizer__lr=2e-3, seed=3)
    assert [change.what for change in found.changes] == [
        ("model.n_layers: 2 -> 4",), ("model.attention.n_kv_heads: 4 -> 1",), ("model.ffn.d_ff: 128 -> 256",),
    ]  # fmt: skip
    heads = found.changes[1].costs
    assert heads["params"] == -4 * 2 * D * (D - D // 4), "four layers lose three of four key and value heads"
    assert heads["state_bytes_per_token"] == -4 * 2 * 4 * (D - D // 4), "in float32"
    for name in COSTS:
        assert sum(change.costs[name] for change in found.changes) == found.after[name] - found.before[name]
    costs = ledger(load(config(**SMALL | values)).model)
    assert found.after == {name: getattr(costs, name) for name in COSTS}
    assert found.others == ("seed: 0 -> 3", "optimizer.lr: 0.001 -> 0.002")


def test_another_component_is_one_change(tmp_path):
    found = changed(tmp_path, model__ffn={"name": "mlp", "d_ff": F})
    (only,) = found.changes
    assert only.what == ("model.ffn: glu -> mlp",)
    assert only.costs["params"] == -2 * D * F + 2 * (F + D), "of three maps one goes, and two have biases now"


def test_what_only_works_together_is_changed_together(tmp_path):
    """Six heads of three key heads: either number alone divides nothing."""
    found = changed(tmp_path, model__attention__n_heads=6, model__attention__n_kv_heads=3, model__attention__d_head=16)
    named = [what for change in found.changes for what in change.what]
    assert len(named) == 3 and any(len(change.what) > 1 for change in found.changes)
    for name in COSTS:
        assert sum(change.costs[name] for change in found.changes) == found.after[name] - found.before[name]


def test_a_slot_that_is_added_comes_with_its_pattern(tmp_path):
    moe = {"name": "mlp", "d_ff": 32}
    found = changed(tmp_path, model__second=moe, model__pattern=["attention+ffn", "attention+second"])
    assert [len(change.what) for change in found.changes] in ([2], [1, 1])
    assert found.changes[-1].costs["params"] < 0


def test_equal_architectures_have_no_changes(tmp_path):
    found = changed(tmp_path, seed=1)
    assert found.changes == () and found.before == found.after and found.others == ("seed: 0 -> 1",)


@pytest.mark.parametrize("broken", ["absent", "unreadable", "unbuildable"])
def test_what_cannot_be_told_apart_is_refused(broken, tmp_path):
    write(tmp_path / "a", **SMALL)
    if broken != "absent":
        file = write(tmp_path / "b", **SMALL) / "config.yaml"
        file.write_text("[" if broken == "unreadable" else file.read_text().replace("name: gqa", "name: wings"))
    with pytest.raises(ArchlabError, match=r"^diff: "):
        difference(read_folder(tmp_path / "a"), read_folder(tmp_path / "b"))

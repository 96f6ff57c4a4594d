"""What the table of a comparison says: numbers as they are written, and nothing lost where a terminal is narrow."""

import io
import re

import pytest
from rich.console import Console

from builder.compare.apart import ABSENT_VALUE, Columns, shortened, shown
from builder.compare.changes import COSTS, Change, Difference
from builder.compare.changes import render as render_changes
from builder.compare.fitting import Fitting
from builder.compare.table import count, number, render, spread, steps
from tests.compare.synthetic import compared, write

LONG = "val/a_metric_with_a_long_name"


@pytest.mark.parametrize(
    ("value", "said"),
    [(999, "999"), (999_808, "1M"), (999_499, "999k"), (1_000_320, "1M"), (4.16e12, "4.16T"), (0, "0"), (None, "")],
)
def test_a_count_has_the_unit_that_its_digits_need(value, said):
    assert count(value) == said


@pytest.mark.parametrize(("value", "said"), [(1e-3, "0.001"), (0.1234567891, "0.1234567891"), (2.0, "2")])
def test_a_value_of_a_config_keeps_its_digits(value, said):
    assert shown(value) == said


def printed(what, width):
    file = io.StringIO()
    Console(width=width, file=file).print(what)
    return file.getvalue()


GQA, MLA = {"model.attention.name": "gqa", "model.attention.bias": False}, {"model.attention.name": "mla"}
ITEMS = [
    {**GQA, "model.attention.n_heads": 4, "model.attention.n_kv_heads": 2, "model.norm.name": "rmsnorm"},
    {**GQA, "model.attention.n_heads": 8, "model.attention.n_kv_heads": None, "model.norm.name": "rmsnorm"},
    {**MLA, "model.attention.n_heads": 4, "model.attention.kv_rank": 32, "model.norm.name": "layernorm"},
]


def test_a_slot_is_one_column_in_which_nothing_is_lost():
    """A knob of one kind stands in brackets where it varies, else below; one that all have is a column of its own."""
    paths = dict.fromkeys(path for item in ITEMS for path in item)
    columns = Columns.of(shortened(list(paths)), ITEMS)
    assert list(columns.paths) == ["attention", "n_heads", "norm"]
    assert [columns.cells(item) for item in ITEMS] == [
        ["gqa(n_kv_heads=2)", "4", "rmsnorm"],
        ["gqa(n_kv_heads=null)", "8", "rmsnorm"],
        ["mla", "4", "layernorm"],
    ]
    assert columns.fixed == ["attention=gqa: bias=false", "attention=mla: kv_rank=32"]
    assert columns.label(ITEMS[0]) == "attention=gqa(n_kv_heads=2) n_heads=4 norm=rmsnorm"


def test_a_slot_that_some_have_not_and_a_component_within():
    """With the name of another key in the place of the slot's own."""
    inner = {"model.ssm.name": "mamba2", "model.ssm.d_state": 16, "model.ssm.norm.name": "rmsnorm", "data.ssm": 1}
    items = [inner, inner | {"model.ssm.norm.name": "layernorm"}, {"data.ssm": 2}]
    columns = Columns.of(shortened(list(inner)), items)
    assert [columns.cells(item) for item in items] == [
        ["mamba2(norm=rmsnorm)", "1"],
        ["mamba2(norm=layernorm)", "1"],
        ["-", "2"],
    ]
    assert list(columns.paths) == ["model.ssm", "ssm"] and columns.fixed == ["model.ssm=mamba2: d_state=16"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Runs that differ in a slot, runs that differ in many keys, and those ranked by a metric with a long name."""
    root = tmp_path_factory.mktemp("runs")
    loss = {1000: 3.0, 4900: 2.0, 5000: 2.125}
    mla = {"name": "mla", "d_head": 32, "kv_rank": 32, "d_rope": 16}
    for place, own in enumerate(({"name": "gqa", "n_kv_heads": 2}, {"name": "gqa", "n_kv_heads": 4}, mla)):
        costs, attention = {"params": 123_456_789 * (place + 1)}, {"n_heads": 4, **own}
        write(root / f"slots/{place}", loss, costs=costs, trainer__max_steps=5000, model__attention=attention)
    for place in range(9):
        for seed in (0, 1)[: 2 - place % 2]:
            write(
                root / f"keys/{place}-{seed}", {step: value + place / 16 for step, value in loss.items()},
                seed=seed, trainer__max_steps=5000 + place, model__pattern=["attention"] * place + ["attention+ffn"],
                model__n_layers=place + 1, optimizer__lr=(place + 1) / 1024, optimizer__weight_decay=place / 128,
                schedule__warmup_steps=100 + place, batch__sequences=2 + place, model__d_model=32 * (place + 2),
                costs={"params": 123_456_789 * (place + 1)}, status="failed" if place == 8 else "completed",
                more={LONG: {5000 + 10 * seed: 123_456.75 * (place + 1)}},
            )  # fmt: skip
    slots, keys = compared(root / "slots", force=True), compared(root / "keys", force=True)
    return {"slots": slots, "keys": keys, "long": compared(root / "keys", force=True, rank=LONG)}


def lost(comparison, text, width):
    """What of a comparison can't be read: numbers and values that stand nowhere in one piece, and too long lines."""
    wanted = [wanted for row in comparison.rows for wanted in (spread(row), steps(row), count(row.cost("params")))]
    wanted += [number(value.value) for row in comparison.rows for _, value in row.values]
    for row in comparison.rows:
        told = [value for value in row.configuration.differing.values() if value != ABSENT_VALUE]
        wanted += [shown(entry) for value in told for entry in (value if isinstance(value, list) else [value])]
    there = [word for word in wanted if re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", text)]
    return [word for word in wanted if word not in there] + [line for line in text.splitlines() if len(line) > width]


@pytest.mark.parametrize("width", [50, 80, 120, 250])
@pytest.mark.parametrize("what", ["slots", "keys", "long"])
def test_nothing_is_cut(what, width, found):
    text = printed(render(found[what]), width)
    assert lost(found[what], text, width) == [] and "…" not in text


def test_a_column_for_each_key_would_be_cut(found, monkeypatch):
    monkeypatch.setattr(Fitting, "__rich_console__", lambda self, *_: iter([self._upright(self.words)]))
    for what in ("keys", "long"):
        assert lost(found[what], printed(render(found[what]), 80), 80)


def test_a_slot_is_read_at_a_glance(found):
    """Three attentions that differ in a dozen keys: a line for each, and what goes with their names once."""
    lines = printed(render(found["slots"]), 80).splitlines()
    assert [line.split()[1] for line in lines[2:5]] == ["gqa(n_kv_heads=2)", "gqa(n_kv_heads=4)", "mla"]
    assert "attention=mla: d_head=32, q_rank=null, kv_rank=32, d_rope=16, d_value=null" in "\n".join(lines)


def test_what_a_change_costs_is_never_cut():
    costs = dict.fromkeys(COSTS, 671_026_419_200)
    words = ("model.pattern: [attention+ffn] -> [ssm]", "model.attention: mla -> gqa")
    found = Difference("a", "b", costs, costs, (Change(words, {name: -cost for name, cost in costs.items()}),), ())
    text = printed(render_changes(found), 80)
    assert text.count(" 671,026,419,200") == 8 and text.count("-671,026,419,200") == 4
    assert "[attention+ffn]" in "".join(line[:12].strip() for line in text.splitlines())

"""The deploy contract: a row for each kind of layer, what it keeps, and the verdict on how far it is to go."""

import pytest

from builder import registry
from builder.checklist import deploy
from builder.checklist.deploy import Deployed
from builder.checklist.subject import Subject
from builder.components.position import Position
from builder.data.tokenizer.bytes import Bytes
from builder.data.tokenizer.symbols import Symbols
from builder.ledger import ledger

GQA = {"name": "gqa", "n_heads": 4}
ROPE, LEARNED, NONE = {"name": "rope"}, {"name": "learned"}, {"name": "none"}
LONG = {"model.deploy_length": 512}  # trained at 128
HYBRID = {
    "model.pattern": ["mamba", "local+ffn", "attention+ffn", "local"],
    "model.n_layers": 8,
    "model.local": GQA | {"window": 64, "n_kv_heads": 1},
    "model.mamba": {"name": "mamba"},
}
TWO = {
    "model.kind": "encoder_decoder",
    "model.encoder": {"n_layers": 3},
    "model.pattern": ["attention+cross+ffn"],
    "model.cross": {"name": "cross", "n_heads": 4, "n_kv_heads": 2},
}


@pytest.fixture
def rows(run):
    """rows(changes): the whole contract."""
    return lambda changes=(): deploy.rows(Subject(run(changes), False, None, None, trains=False))


@pytest.fixture
def row(rows):
    """row(changes, slot, tower): the one row of that slot."""

    def find(changes=(), slot="attention", tower=""):
        (found,) = (
            row for row in rows(changes) if row.slot == slot and row.layers.startswith("encoder") == bool(tower)
        )
        return found

    return find


def test_each_slot_has_a_row_of_its_layers(rows, judge):
    assert [(row.slot, row.layers, row.window, row.scheme) for row in rows(HYBRID)] == [
        ("mamba", "2 layers (0, 4)", None, "none"),
        ("local", "4 layers (1, 3, 5, ...)", 64, "rope"),
        ("attention", "2 layers (2, 6)", None, "rope"),
    ]
    assert [row.layers for row in judge(TWO, trains=False).deploy] == [
        "layers 0 to 1",
        "layers 0 to 1",
        "encoder layers 0 to 2",
    ]


@pytest.mark.parametrize("changes", [{}, LONG, HYBRID, HYBRID | LONG, TWO], ids=str)
def test_what_all_keep_is_what_the_ledger_counts(run, rows, changes):
    found = rows(changes)
    assert sum(row.state_bytes for row in found) == ledger(run(changes).model).state_bytes
    assert all(row.batch == 32 and row.batch_bytes == 32 * row.state_bytes for row in found)


@pytest.mark.parametrize(
    ("changes", "slot", "numbers"),
    [
        (LONG, "attention", 2 * 2 * 8 * 512 * 2),  # keys and values of 2 heads of 8, in 2 layers
        (HYBRID | LONG, "local", 2 * 1 * 8 * 64 * 4),  # of a head, for a window, in 4
        (TWO | LONG, "cross", 2 * 2 * 8 * 128 * 2),  # of a source of train_length
    ],
)
def test_what_attention_keeps(row, changes, slot, numbers):
    assert row(changes, slot).state_bytes == 4 * numbers  # float32


def test_a_recurrence_keeps_as_much_of_a_longer_text(row):
    assert row(HYBRID, "mamba").state_bytes == row(HYBRID | LONG, "mamba").state_bytes > 0


def test_an_encoder_keeps_nothing(row):
    assert row(TWO, "attention", "encoder").state_bytes == 0 < row(TWO, "attention").state_bytes


@pytest.mark.parametrize(
    ("changes", "slot", "status", "scheme", "table", "fix"),
    [
        ({}, "attention", "PASS", "rope", None, ""),
        (LONG, "attention", "WARN", "rope", None, "model.deploy_length=128, train longer"),
        (LONG | {"model.attention.window": 128}, "attention", "PASS", "rope", None, ""),
        (LONG | {"model.attention.window": 129}, "attention", "WARN", "rope", None, "model.deploy_length=128"),
        ({"model.attention.window": 128}, "attention", "WARN", "rope", None, "model.attention.window=null"),
        ({"model.deploy_length": 64}, "attention", "PASS", "rope", None, ""),
        (HYBRID | LONG, "attention", "WARN", "rope", None, "model.deploy_length=128"),
        (HYBRID | LONG, "local", "PASS", "rope", None, ""),
        (HYBRID | LONG, "mamba", "PASS", "none", None, ""),
        ({"model.position": LEARNED}, "attention", "PASS", "learned", 128, ""),
        ({"model.position": LEARNED | {"length": 300}}, "attention", "PASS", "learned", 300, ""),
        # a table stands before the layers: it ends for every one of them, whatever its window or its state
        (LONG | {"model.position": LEARNED, "model.attention.window": 64}, "attention", "FAIL", "learned", 128, "128"),
        (HYBRID | LONG | {"model.position": LEARNED}, "mamba", "FAIL", "learned", 128, "model.deploy_length=128"),
        (
            LONG | {"model.position": LEARNED, "model.attention.position": ROPE},
            "attention",
            "FAIL",
            "learned, rope",
            128,
            "model.deploy_length=128",
        ),
        (LONG | {"model.position": NONE}, "attention", "PASS", "none", None, ""),
        (
            LONG | {"model.position.scaling": {"name": "yarn", "factor": 4.0}},
            "attention",
            "WARN",
            "rope + yarn 4",
            None,
            "model.position.scaling={name: dynamic, factor: 4}",
        ),
        (
            LONG | {"model.position.scaling": {"name": "dynamic", "factor": 4.0}},
            "attention",
            "PASS",
            "rope + dynamic 4",
            None,
            "",
        ),
        (TWO, "cross", "PASS", "none", None, ""),
        (TWO | {"model.deploy_length": 64}, "cross", "WARN", "none", None, "model.deploy_length=128"),
        (TWO | LONG | {"model.cross.position": ROPE}, "cross", "WARN", "rope", None, "model.deploy_length=128"),
    ],
)
def test_the_verdict_is_that_of_scheme_and_window(row, changes, slot, status, scheme, table, fix):
    found = row(changes, slot)
    assert (found.status, found.scheme, found.table) == (status, scheme, table) and found.rule
    assert fix in found.fix and bool(found.fix) == (status != "PASS")
    assert (found.train_length, found.deploy_length) == (128, dict(changes).get("model.deploy_length", 128))


def test_a_scheme_without_a_verdict_is_unknown(row, plant, monkeypatch):
    scheme = plant("position", "silent")(type("Silent", (registry.find("position", "none"),), {}))
    for verdict in (lambda config, site: [], Position.check):
        monkeypatch.setattr(scheme, "check", verdict)
        found = row({"model.position": {"name": "silent"}})
        assert (found.status, found.scheme) == ("UNKNOWN", "silent") and "no verdict" in found.rule


def test_a_model_that_can_not_be_built_has_no_rows(rows):
    assert rows({"model.d_model": 34}) == () != rows()


def test_every_field_has_a_column_and_a_place_in_the_plain_row(row):
    found = row(LONG)
    assert {field for field, _ in Deployed.COLUMNS} == found.to_dict().keys()
    told = dict(zip((heading for _, heading in Deployed.COLUMNS), found.cells(), strict=True))
    assert told["deployed"] == "512" and told["of a batch"] == f"{found.batch_bytes:,}" and told["window"] == "-"


MASKED = {"model.kind": "encoder", "objective": {"name": "masked"}}


@pytest.mark.parametrize(
    ("changes", "tokenizer", "status", "path"),
    [
        ({}, Bytes(), "PASS", "sample"),
        ({}, None, "UNKNOWN", "sample"),
        ({"sample.prompt": "a" * 128}, Bytes(), "FAIL", "sample.max_new_tokens"),
        ({"sample.prompt": "a" * 127}, Bytes(), "PASS", "sample"),
        ({"sample.max_new_tokens": 126}, Bytes(), "FAIL", "sample.max_new_tokens"),
        ({"sample.max_new_tokens": 124}, Bytes(), "PASS", "sample"),  # behind "The "
        ({}, Symbols(3), "FAIL", "sample.prompt"),
        ({"sample.prompt": "0 1 >"}, Symbols(3), "PASS", "sample"),
        (MASKED | {"sample.prompt": "a" * 128}, Bytes(("mask",)), "FAIL", "sample.prompt"),
        ({"model.kind": "encoder"}, Bytes(), "UNKNOWN", "sample"),  # whose objective is told to be another
        ({"sample.num_beams": 4}, Bytes(), "FAIL", "sample.temperature"),
        ({"sample.num_beams": 4, "sample.temperature": 0, "sample.top_k": 5}, Bytes(), "FAIL", "sample.top_k"),
        ({"sample.num_beams": 4, "sample.temperature": 0}, Bytes(), "PASS", "sample"),
    ],
)
def test_what_is_to_be_written_has_room(run, changes, tokenizer, status, path):
    (found,) = deploy.check(Subject(run(changes), False, None, tokenizer))
    assert (found.section, found.status, found.path) == (3, status, path)
    assert bool(found.fix) == (status == "FAIL")


def test_the_room_is_asked_for_in_a_check(judge):
    told = judge({"sample.prompt": "a" * 128}, tokenizer=Bytes())
    assert "sample.max_new_tokens" in [finding.path for finding in told.failures]


def test_what_is_not_trained_is_asked_by_its_own_caller(judge):
    told = judge({"sample.prompt": "a" * 128}, tokenizer=Bytes(), trains=False)
    assert not [finding for finding in told.findings if finding.section == 3 and "sample" in finding.path]


@pytest.mark.parametrize(("window", "status"), [(128, "PASS"), (129, "WARN")])
def test_a_scheme_is_judged_by_what_its_layers_look_back(judge, window, status):
    report = judge(LONG | {"model.attention.window": window}, trains=False)
    (told,) = [finding for finding in report.findings if finding.path == "model.position.theta"]
    assert (told.status, bool(told.fix)) == (status, status == "WARN")
    assert told.rule == report.deploy[0].rule

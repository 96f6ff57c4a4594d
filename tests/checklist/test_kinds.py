"""The probes on encoders, encoder-decoders and prefixes: what is right passes, and each planted fault is seen."""

import copy
from dataclasses import replace

import pytest

from builder import registry
from builder.checklist import check
from builder.compose import compose
from builder.finding import Status
from builder.load import load

GQA, CROSS = registry.find("attention", "gqa"), registry.find("attention", "cross")
SMALL = ["model.n_layers=2", "model.d_model=32", "model.attention.n_heads=4", "model.ffn.d_ff=48"]
KINDS = {
    "encoder": ["model=encoder", "objective=masked"],
    "two": ["model=encoder_decoder", "objective=span_corruption", "model.encoder.n_layers=2"],
    "prefix": ["model.prefix=true", "objective=prefix_lm"],
    "classes": ["model=encoder", "objective=classification", "model/head=classifier", "model.head.n_classes=3",
                "model.tie_embeddings=false"],
    "vectors": ["model=encoder", "objective=contrastive", "model/head=sentence", "model.tie_embeddings=false"],
    "shared": ["model.shared=[attention+ffn]"],
}  # fmt: skip


@pytest.fixture(scope="module")
def configs():
    return {kind: compose([*overrides, *SMALL]) for kind, overrides in KINDS.items()}


@pytest.fixture
def report(configs, plant):
    """report(kind, slot=class): the checklist of a kind of model, a class planted in some slots."""

    def make(kind, **planted):
        config = copy.deepcopy(configs[kind])
        for slot, cls in planted.items():
            plant("attention", f"planted_{slot}")(cls)
            config["model"][slot] = {**config["model"][slot], "name": f"planted_{slot}"}
        return check(load(config), trains=False)

    return make


class SeesPadsOfTheSource(CROSS):
    """Reads the source's padding too."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, source=replace(ctx.source, mask=replace(ctx.source.mask, real=None))))


class CausalOverTheSource(CROSS):
    """Sees of the source what stands before its own place only, as if it were one sequence."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, source=replace(ctx.source, mask=replace(ctx.source.mask, causal=True))))


class ForgetsTheSource(CROSS):
    """Reads nothing of a source behind the first pass."""

    def forward(self, x, ctx):
        out = super().forward(x, ctx)
        return out * 0 if ctx.state is not None and ctx.state.used != x.shape[1] else out


class OneWay(GQA):
    """Looks back only, whatever may be seen."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=ctx.mask.backward()))


class OneSidedWindow(GQA):
    """Says that it looks three tokens to both sides, and looks back only."""

    def sees(self, mask):
        return mask.within(3)

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=replace(ctx.mask.within(3), causal=True)))


class AllIsPrefix(GQA):
    """Sees everything as soon as there is a prefix."""

    def forward(self, x, ctx):
        mask = ctx.mask if ctx.mask.prefix is None else replace(ctx.mask, causal=False, prefix=None)
        return super().forward(x, replace(ctx, mask=mask))


FAULTS = [
    ("two", "cross", SeesPadsOfTheSource, "FAIL", 2, "ends in 3 pads"),
    ("two", "cross", SeesPadsOfTheSource, "FAIL", 3, "behind the source"),
    ("two", "cross", CausalOverTheSource, "WARN", 2, "reading its source"),
    ("two", "cross", ForgetsTheSource, "FAIL", 3, "split"),
    ("two", "attention", OneWay, "WARN", 2, "layer of the encoder"),
    ("encoder", "attention", OneWay, "WARN", 2, "the whole model"),
    ("encoder", "attention", OneSidedWindow, "WARN", 2, "each attention+ffn layer"),
    ("prefix", "attention", OneWay, "WARN", 2, "4 of them a prefix"),
    ("prefix", "attention", AllIsPrefix, "FAIL", 2, "4 of them a prefix"),
    ("prefix", "attention", AllIsPrefix, "FAIL", 3, "a prefix of 4 tokens"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_fault_passes(report, kind):
    found = report(kind)
    assert found.ok and found.counts["WARN"] == 0, str(found)
    assert all(finding.found != "not run" for finding in found.findings)


@pytest.mark.parametrize(("kind", "slot", "cls", "status", "section", "what"), FAULTS,
                         ids=lambda value: getattr(value, "__name__", str(value)))  # fmt: skip
def test_a_planted_fault_is_seen(report, kind, slot, cls, status, section, what):
    found = report(kind, **{slot: cls})
    assert any(f.status == status and f.section == section and what in f.found for f in found.findings), str(found)


def test_two_tables_are_seen(configs):
    from builder.checklist.probes import specimen, tying

    made = specimen(load(configs["two"]).model)
    assert all(finding.status is Status.PASS for finding in tying.prove(made))
    made.model.encoder.embedding.weight = copy.deepcopy(made.model.embedding.weight)
    assert [finding.path for finding in tying.prove(made) if finding.status is Status.FAIL] == ["model.encoder"]


MISFITS = [
    (["objective=masked"], "objective", "model=encoder"),
    (["model=encoder"], "objective", "model=decoder"),
    (["model=encoder", "objective=classification"], "model.head", "model/head=classifier"),
    (["model.prefix=true"], "model.prefix", "objective=prefix_lm"),
    (["objective=prefix_lm"], "model.prefix", "model.prefix=true"),
    ([*KINDS["classes"], "objective=masked"], "model.head", "model/head=language_model"),
    ([*KINDS["vectors"], "batch.micro_batch=2"], "batch.micro_batch", "batch.micro_batch=null"),
    ([*KINDS["vectors"], "batch.sequences=1"], "batch.sequences", "batch.sequences=32"),
    ([*KINDS["classes"], "model/head=token_classifier", "data=passages"], "model.head", "model/head=classifier"),
    ([*KINDS["classes"], "fused_loss=true"], "fused_loss", "fused_loss=false"),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "path", "fix"), MISFITS, ids=str)
def test_an_objective_that_the_model_does_not_fit_is_refused(overrides, path, fix):
    found = check(load(compose([*overrides, *SMALL])), probes=False, trains=False)
    (told,) = [finding for finding in found.failures if finding.path == path]
    assert fix in told.fix


@pytest.mark.parametrize(("classes", "status"), [(2, "FAIL"), (3, "PASS"), (4, "WARN")])
def test_classes_are_counted_against_labels(tmp_path, classes, status):
    from builder.data import cache_folder, prepare

    file = tmp_path / "rows.csv"
    file.write_text("text,label\n" + "".join(f"text {n},{'abc'[n % 3]}\n" for n in range(30)))
    data = ["data=files", f"data.path={file}", "data.form=labelled", f"model.head.n_classes={classes}"]
    spec = load(compose([*KINDS["classes"], *SMALL, *data]))
    report = check(spec, probes=False, corpus=prepare(spec, cache=cache_folder()), trains=False)
    (told,) = [
        finding for finding in report.findings if finding.path == "model.head.n_classes" and finding.section == 6
    ]
    assert told.status == status and (status == "PASS" or told.fix == "model.head.n_classes=3")


def test_an_objective_that_forgets_where_documents_end_is_seen(configs):
    config = copy.deepcopy(configs["two"])
    for packing, paths in (("documents", ["data.packing"]), ("padded", [])):
        config["data"]["packing"] = packing
        assert [finding.path for finding in check(load(config)).failures] == paths


def test_rows_that_compete_for_experts_are_told_of_and_no_leak(configs):
    config = copy.deepcopy(configs["encoder"])
    expert = {"name": "glu", "d_ff": 24}
    moe = {"name": "moe", "expert": expert, "n_experts": 4, "top_k": 1, "balance": False}
    for router, status in (("expert_choice", Status.WARN), ("topk", Status.PASS)):
        config["model"]["ffn"] = {**moe, "router": {"name": router}}
        found = check(load(config), trains=False)
        (told,) = [finding for finding in found.findings if "three rows at once" in finding.found]
        assert found.ok and told.status is status, str(found)

"""Every rule that needs no run: a config that breaks it, where it is told, and that the fix mends it."""

import pytest

from builder.finding import Status

ROPE, LEARNED = {"name": "rope"}, {"name": "learned"}
GQA = {"name": "gqa", "n_heads": 4}

# what breaks it, (status, section, path, a part of what is found, a part of the fix), what the fix sets
BROKEN = {
    "heads do not divide the width": (
        {"model.d_model": 34},
        ("FAIL", 1, "model.attention.n_heads", "4", "model.d_model=40"),
        {"model.d_model": 40},
    ),
    "heads do not divide, the other way out": (
        {"model.d_model": 34},
        ("FAIL", 1, "model.attention.n_heads", "4", "d_head"),
        {"model.d_model": 34, "model.attention.d_head": 8},
    ),
    "heads do not divide, without positions": (
        {"model.d_model": 34, "model.position": {"name": "none"}},
        ("FAIL", 1, "model.attention.n_heads", "4", "model.d_model=36"),
        {"model.d_model": 36, "model.position": {"name": "none"}},
    ),
    "an odd head with rope": (
        {"model.attention.d_head": 5},
        ("FAIL", 1, "model.attention.d_head", "d_h 5", "d_head=6"),
        {"model.attention.d_head": 6},
    ),
    "an odd part of a head with rope": (
        {"model.attention.d_head": 12, "model.position": ROPE | {"fraction": 0.25}},
        ("FAIL", 1, "model.attention.d_head", "d_h 12", "d_head=16"),
        {"model.attention.d_head": 16, "model.position": ROPE | {"fraction": 0.25}},
    ),
    "an odd head with a slot's own rope": (
        {"model.attention": GQA | {"d_head": 5, "position": ROPE}, "model.position": {"name": "none"}},
        ("FAIL", 1, "model.attention.d_head", "d_h 5", "d_head=6"),
        {"model.attention": GQA | {"d_head": 6, "position": ROPE}, "model.position": {"name": "none"}},
    ),
    "an ffn narrower than the stream": (
        {"model.ffn.d_ff": 16},
        ("WARN", 1, "model.ffn.d_ff", "d_ff 16", "d_ff=128"),
        {"model.ffn.d_ff": 128},
    ),
    "a pattern that does not tile": (
        {"model.pattern": ["attention+ffn", "attention"], "model.n_layers": 5},
        ("WARN", 1, "model.pattern", "5 layers", "model.n_layers=6"),
        {"model.pattern": ["attention+ffn", "attention"], "model.n_layers": 6},
    ),
    "layers of one set of weights, of which the first has no norm": (
        {"model.shared": ["attention+ffn"], "model.block": {"name": "pre_norm", "first_norm": False}},
        ("FAIL", 4, "model.shared", "wired in 2 ways", "model.shared=[]"),
        {"model.shared": [], "model.block": {"name": "pre_norm", "first_norm": False}},
    ),
    "a learned table shorter than training": (
        {"model.position": LEARNED | {"length": 100}},
        ("FAIL", 3, "model.position.length", "100 positions", "length=128"),
        {"model.position": LEARNED | {"length": 128}},
    ),
    "a learned table deployed past training": (
        {"model.position": LEARNED, "model.deploy_length": 200},
        ("FAIL", 3, "model.position.length", "deployed at 200", "model.deploy_length=128"),
        {"model.position": LEARNED, "model.deploy_length": 128},
    ),
    "sines in an odd width": (
        {"model.d_model": 33, "model.attention.d_head": 8, "model.position": {"name": "sinusoidal"}},
        ("FAIL", 1, "model.position.name", "d_model 33", "model.d_model=34"),
        {"model.d_model": 34, "model.attention.d_head": 8, "model.position": {"name": "sinusoidal"}},
    ),
    "sines deployed past training": (
        {"model.position": {"name": "sinusoidal"}, "model.deploy_length": 200},
        ("WARN", 3, "model.position.name", "deployed at 200", "model.deploy_length=128"),
        {"model.position": {"name": "sinusoidal"}},
    ),
    "rope deployed past training": (
        {"model.deploy_length": 200},
        ("WARN", 3, "model.position.theta", "deployed at 200", "model.deploy_length=128"),
        {"model.deploy_length": 128},
    ),
    "a slot's own scheme that only embeds": (
        {"model.attention": GQA | {"position": LEARNED}},
        ("FAIL", 3, "model.attention.position", "learned, unread", "model.position={name: learned}"),
        {"model.position": LEARNED},
    ),
    "a model's scheme that nobody asks": (
        {"model.attention": GQA | {"position": ROPE | {"theta": 500.0}}},
        ("FAIL", 3, "model.position", "rope, unread", "model/position=none"),
        {"model.attention": GQA | {"position": ROPE | {"theta": 500.0}}, "model.position": {"name": "none"}},
    ),
    "a slot that no layer uses": (
        {"model.local": GQA},
        ("FAIL", 4, "model.local", "gqa, unused", "name local in model.pattern"),
        {"model.local": GQA, "model.pattern": ["local+ffn", "attention+ffn"]},
    ),
    "no norm at the end of an unnormalised stream": (
        {"model.final_norm": False},
        ("FAIL", 4, "model.final_norm", "no norm before the head", "null, or true"),
        {"model.final_norm": True},
    ),
    "two norms in a row": (
        {"model.block": {"name": "post_norm"}, "model.final_norm": True},
        ("WARN", 4, "model.final_norm", "a norm before the head", "null, or false"),
        {"model.block": {"name": "post_norm"}, "model.final_norm": False},
    ),
    "a kernel that can't train where the trainer is": (
        {"model.attention.kernel": "flex", "model.attention.d_head": 16, "trainer.accelerator": "cpu"},
        ("FAIL", 4, "model.attention.kernel", "trainer on cpu", "kernel=null"),
        {"model.attention.kernel": None, "trainer.accelerator": "cpu"},
    ),
    "a kernel without the function that is asked for": (
        {"model.attention.kernel": "sdpa", "model.attention.softcap": 20.0},
        ("FAIL", 4, "model.attention.kernel", "sdpa", "kernel=null"),
        {"model.attention.kernel": None, "model.attention.softcap": 20.0},
    ),
    "a window that no sequence fills": (
        {"model.attention.window": 128},
        ("WARN", 2, "model.attention.window", "window 128", "window=null"),
        {"model.attention.window": 64},
    ),
    "a window of one": (
        {"model.attention.window": 1},
        ("WARN", 2, "model.attention.window", "window 1,", "model.attention.window=null, or 2 to 127"),
        {"model.attention.window": 2},
    ),
    "a filter of what is not drawn": (
        {"sample.temperature": 0, "sample.top_p": 0.5},
        ("WARN", 4, "sample.top_p", "0.5", "sample.top_p=null"),
        {"sample.temperature": 0},
    ),
    "a penalty on the length of no beams": (
        {"sample.length_penalty": 2.0},
        ("WARN", 4, "sample.length_penalty", "2.0", "sample.length_penalty=1.0"),
        {"sample.length_penalty": 2.0, "sample.num_beams": 2, "sample.temperature": 0},
    ),
    "fewer rows than ids": (
        {"model.vocab_size": 257},
        ("FAIL", 6, "model.vocab_size", "257 embedding rows", "at least 258"),
        {"model.vocab_size": 258},
    ),
}


def key(finding):
    return finding.section, finding.path, finding.status


@pytest.mark.parametrize("probes", [True, False], ids=["probes", "no probes"])
def test_the_config_they_start_from_passes(judge, probes):
    report = judge(probes=probes)
    assert report.ok and report.counts["WARN"] == 0


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("probes", [True, False], ids=["probes", "no probes"])
def test_a_broken_rule_is_told_and_the_fix_mends_it(judge, case, probes):
    broken, (status, section, path, found, fix), mended = BROKEN[case]
    report = judge(broken, probes=probes)
    told = [finding for finding in report.findings if key(finding) == (section, path, Status(status))]
    assert told, f"{report}"
    assert found in told[0].found and fix in told[0].fix and told[0].rule
    assert report.ok == (status != "FAIL")
    after = judge(mended, probes=probes)
    assert key(told[0]) not in map(key, after.findings) and after.ok, f"{after}"


@pytest.mark.parametrize("probes", [True, False], ids=["probes", "no probes"])
def test_every_failure_is_told_at_once(judge, probes):
    cases = ("heads do not divide the width", "a slot that no layer uses", "fewer rows than ids",
             "no norm at the end of an unnormalised stream", "a learned table deployed past training")  # fmt: skip
    changes = {path: value for case in cases for path, value in BROKEN[case][0].items()}
    failures = {key(finding) for finding in judge(changes, probes=probes).failures}
    assert {(section, path, Status(status)) for _, (status, section, path, *_), _ in map(BROKEN.get, cases)} <= failures


def test_a_kernel_that_is_of_no_use_is_told_once(judge):
    broken = BROKEN["a kernel without the function that is asked for"][0] | {"trainer.accelerator": "cpu"}
    assert [finding.path for finding in judge(broken, probes=True).failures] == ["model.attention.kernel"]


def test_what_cannot_be_built_is_unknown_and_not_passed(judge):
    report = judge({"model.d_model": 34}, probes=True)
    unknown = {(finding.section, finding.path) for finding in report.findings if finding.status is Status.UNKNOWN}
    assert {(1, "model"), (2, "model"), (3, "model"), (4, "model.tie_embeddings")} <= unknown


def test_without_probes_what_they_prove_is_unknown(judge):
    report = judge(probes=False)
    unproven = [finding for finding in report.findings if finding.fix == "probes=true"]
    assert {finding.section for finding in unproven} == {2, 3, 4}
    assert {finding.status for finding in unproven} == {Status.UNKNOWN}
    assert not [finding for finding in judge(probes=True).findings if finding.fix == "probes=true"]


def test_no_positions_pass_by_the_causal_mask(judge):
    report = judge({"model.position": {"name": "none"}, "model.deploy_length": 4096}, probes=True)
    assert report.ok and "causal mask alone" in str(report)


@pytest.mark.parametrize("length", [1, 4, 9, 11])
@pytest.mark.parametrize("name", ["learned", "rope", "sinusoidal"])
def test_short_models_are_proven_too(judge, name, length):
    changes = {"model.train_length": length, "model.deploy_length": length, "model.position": {"name": name}}
    report = judge(changes, probes=True)
    assert report.ok, f"{report}"
    if name == "learned":
        changes["model.position"] = LEARNED | {"length": length}
        assert judge(changes, probes=True).ok

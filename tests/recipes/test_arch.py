"""Published architectures to the last parameter: the header of a YAML, its ledger and transformers agree."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from builder import check, compose, ledger, load
from builder.checklist import Report
from builder.compose import ROOT
from builder.finding import Status
from builder.interop.family import find
from builder.interop.hf_config import HFConfig
from builder.spec import ModelSpec, RunSpec
from tests.recipes.published import PUBLISHED, active, parameters

FOLDER = ROOT / "recipes" / "arch"
NAMES = sorted(file.stem for file in FOLDER.glob("*.yaml"))
PROBED = ("gpt2", "pythia_70m", "llama3_405b", "mistral_7b", "qwen3_0.6b", "gemma2_27b", "gemma3_27b", "olmo2_32b")
PROBED += ("mixtral_8x7b", "qwen3_30b_a3b", "olmoe_1b_7b", "deepseek_v3", "gpt_oss_20b")
PROBED += ("qwen3_next_80b_a3b", "recurrent_gemma_2b", "falcon_h1_0.5b")
PROBED += ("bert_base", "roberta_base", "distilbert_base", "modernbert_base")
PROBED += ("t5_v1_1_base", "bart_base", "marian_en_de")
PROBED += ("mamba_130m", "mamba2_130m", "falcon_mamba_7b", "bamba_9b", "jamba_v0.1", "zamba2_2.7b")
TRAINED = {"mistral_7b": 8192, "bamba_9b": 4096} | {name: 32768 for name in NAMES if re.match(r"qwen3_\d", name)}
"""Lengths where the paper says less than the config (Jiang et al. 2023, table 1; Yang et al. 2025, section 3.2; Chu et
al. 2024, "Model architecture")."""
BALANCED = {"olmoe_1b_7b": {"z_loss": 0.001}, "deepseek_v3": {"sequence_loss": 0.0001}}
"""Losses that the paper states and the config doesn't (Muennighoff et al. 2024, table 1; DeepSeek-AI 2024, 4.2)."""
STATED = {  # billions, all and active
    "mixtral_8x7b": (46.7, 12.9),
    "qwen3_30b_a3b": (30.5, 3.3),
    "olmoe_1b_7b": (6.9, 1.3),
    "deepseek_v3": (671, 37),
    "gpt_oss_20b": (20.9, 3.6),
    "jamba_v0.1": (52, 12),
    "qwen3_next_80b_a3b": (80, 3.87),  # its card says 3, without the embedding and the head
}
SOURCE = re.compile(r"\(.*\b20\d\d\b.*\)")


@cache
def loaded(name: str) -> RunSpec:
    return load(compose([f"arch={name}"]))


@cache
def checked(name: str) -> Report:
    return check(loaded(name), probes=name in PROBED, trains=False)


def header(text: str) -> list[str]:
    return [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]


def counts_in(text: str) -> tuple[int, int]:
    """The parameters that a header states, all and active; the same where it states one count."""
    stated = r": ([\d,]+) parameters(?:, ([\d,]+) active per token)?\.$"
    counts = re.findall(stated, "\n".join(header(text)), re.MULTILINE)
    assert len(counts) == 1, "a header states one count"
    whole, part = (int(count.replace(",", "") or 0) for count in counts[0])
    return whole, part or whole


def described(model: ModelSpec) -> dict[str, Any]:
    """All that a model computes, every layer written out, whatever its slots are called and however it was said."""
    whole = model.model_dump(mode="json")
    ends = ("kind", "d_model", "vocab_size", "tie_embeddings", "norm", "block", "embedding", "head", "final_norm")
    lengths = ("train_length", "deploy_length")
    towers = {f"{name} layers".strip(): list(_layers(tower)) for name, tower in model.towers.items()}
    return {key: whole[key] for key in (*ends, *lengths)} | towers


def _layers(model: ModelSpec) -> Iterator[Any]:
    for layer in model.layers:
        attention: Any = layer.mixer.config
        ffn = {} if (part := layer.part("ffn")) is None else part.config.model_dump(mode="json")
        if not hasattr(attention, "position"):  # it carries a state, as wide as its null says
            yield _recurrent(attention, model), ffn
            continue
        position = (attention.position or model.position).model_dump(mode="json", exclude_none=True)
        placed = {"position": {"length": model.train_length} | position}  # a table is as long, unless it says more
        crossed = {} if (part := layer.part("cross")) is None else {"cross": _resolved(part.config, model)}
        yield _resolved(attention, model) | placed | crossed, ffn


def _recurrent(mixer: Any, model: ModelSpec) -> dict[str, Any]:
    """The knobs of what carries a state, those that follow from others written out, and of what stands inside of it."""
    counted = {key: getattr(mixer, key, None) for key in ("channels", "rank", "heads")}
    widths = {key: count(model.d_model) for key, count in counted.items() if callable(count)}
    inner = {"ssm": _recurrent(mixer.ssm, model)} if hasattr(mixer, "ssm") else {}
    return mixer.model_dump(mode="json", exclude={"d_inner", "dt_rank"}) | widths | inner


def _resolved(attention: Any, model: ModelSpec) -> dict[str, Any]:
    """The knobs of an attention, with those that follow from others written out."""
    width = attention.d_head or model.d_model // attention.n_heads
    resolved = {"n_kv_heads": getattr(attention, "kv_heads", None), "d_head": width}
    resolved |= {"bias": sorted(getattr(attention, "biased", ()))}
    width += getattr(attention, "d_rope", 0)
    return attention.model_dump(mode="json") | resolved | {"scale": round(attention.scale or width**-0.5, 12)}


@cache
def published(name: str) -> dict[str, Any]:
    """The same of the hub's config, read as import reads it; tests/interop compares that with transformers' logits."""
    model = find(PUBLISHED[name]["model_type"]).spec(HFConfig(PUBLISHED[name]))
    if name in TRAINED:
        model = model.model_copy(update=dict.fromkeys(("train_length", "deploy_length"), TRAINED[name]))
    known = described(model)
    for mixer, ffn in known["layers"]:
        if ffn.get("balance"):
            ffn["balance"] |= BALANCED.get(name, {})
        scaling = mixer.get("position", {}).get("scaling")
        if scaling:  # linear scaling computes nothing with it: no config says it
            scaling["original_length"] = scaling["original_length"] or 32768
    return known


@pytest.fixture(autouse=True)
def no_probes():
    """Probes are run here, unlike in the other tests of this folder."""


def test_every_file_is_compared_with_something_published():
    assert set(NAMES) == set(PUBLISHED)
    assert {PUBLISHED[name]["model_type"] for name in PROBED} == {known["model_type"] for known in PUBLISHED.values()}


@pytest.mark.parametrize("name", NAMES)
def test_header_ledger_and_transformers_agree(name: str):
    text = (FOLDER / f"{name}.yaml").read_text("utf-8")
    assert any(line.partition(" trainer=")[0] == f"python -m recipes.check arch={name}" for line in header(text))
    assert any(SOURCE.search(line) for line in header(text)), "the paper, with its year"
    assert counts_in(text) == (parameters(name), active(name))
    assert f"{parameters(name):,} parameters" in {finding.found for finding in checked(name).findings}
    costs = ledger(loaded(name).model)
    assert (costs.params, costs.active_params) == (parameters(name), active(name))


@pytest.mark.parametrize("name", STATED)
def test_of_experts_as_much_is_active_as_their_papers_say(name: str):
    """gpt-oss's card leaves the embedding out."""
    embedding = PUBLISHED[name]["vocab_size"] * PUBLISHED[name]["hidden_size"] if name == "gpt_oss_20b" else 0
    found = parameters(name), active(name) - embedding
    assert found == pytest.approx([1e9 * billions for billions in STATED[name]], rel=0.02)


def test_every_mixture_is_compared_with_what_its_paper_says():
    assert set(STATED) == {name for name in NAMES if active(name) < parameters(name)}


def test_a_header_without_its_count_is_seen():
    with pytest.raises(AssertionError, match="one count"):
        counts_in("# A model of 12 parameters.\nmodel: {d_model: 12}\n")


def test_a_bias_less_is_counted():
    changed = load(compose(["arch=gpt2", "model.attention.bias=[q,k,v]"]))
    assert ledger(changed.model).params == parameters("gpt2") - 12 * 768


@pytest.mark.parametrize("name", NAMES)
def test_what_no_count_shows_is_as_published(name: str):
    assert described(loaded(name).model) == published(name)


@pytest.mark.parametrize(
    "change",
    [
        *("local.window=512", "attention.scale=0.08", "position.scaling.factor=4.0", "local.position.theta=1e6"),
        *("norm.unit_offset=false", "norm.eps=1e-5", "embedding.scale=null", "ffn.activation=gelu"),
        *("head.softcap=30.0", "attention.qk_norm_at=after", "attention.dropout=0.1"),
        "pattern=[attention+ffn,local+ffn,local+ffn,local+ffn,local+ffn,local+ffn]",
    ],
)
def test_another_model_of_as_many_parameters_is_told_apart(change: str):
    changed = load(compose(["arch=gemma3_27b", f"model.{change}"]))
    assert described(changed.model) != published("gemma3_27b") == described(loaded("gemma3_27b").model)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mamba_130m", "ssm.dt_max=0.2"),
        ("mamba2_130m", "ssm.norm_before_gate=true"),
        ("falcon_mamba_7b", "ssm.norm.eps=1e-5"),
        ("bamba_9b", "pattern=[ssm+ffn,attention+ffn]"),
        ("jamba_v0.1", "moe.router.weights=renormalised"),
        ("qwen3_next_80b_a3b", "ssm.norm.unit_offset=true"),
        ("qwen3_next_80b_a3b", "ffn.shared_gate=false"),
        ("recurrent_gemma_2b", "embedding.scale=sqrt_d_model"),
        ("recurrent_gemma_2b", "attention.window=1024"),
        ("falcon_h1_0.5b", "ssm.attention.scale=null"),
        ("falcon_h1_0.5b", "ssm.ssm_in=1.0"),
        ("falcon_h1_0.5b", "ssm.ssm.factors=null"),
    ],
)
def test_another_state_of_as_many_parameters_is_told_apart(name: str, change: str):
    assert described(load(compose([f"arch={name}", f"model.{change}"])).model) != published(name)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bert_base", "embedding.scale=2.0"),
        ("bert_base", "head.transform=relu"),
        ("modernbert_base", "local.window=64"),
        ("t5_small", "cross.scale=null"),
        ("t5_small", "head.scale=null"),
        ("bart_base", "block=pre_norm"),
        ("marian_en_de", "position.pairing=interleaved"),
        ("all_minilm_l6", "head.pooling.name=first"),
    ],
)
def test_another_encoder_of_as_many_parameters_is_told_apart(name: str, change: str):
    wanted = change.replace("block=", "block.name=")
    assert described(load(compose([f"arch={name}", f"model.{wanted}"])).model) != published(name)


@pytest.mark.parametrize("name", NAMES)
def test_each_passes_the_checklist_and_one_of_each_family_its_probes(name: str):
    spec, report = loaded(name), checked(name)
    assert load(spec.to_dict()) == spec
    assert report.ok, str(report)
    assert any(finding.found == "not run" for finding in report.findings) == (name not in PROBED)
    doubts = ["model.block.residual"] * (name == "bert_large")  # it is deep for norms on the stream
    doubts += ["model.pattern"] * bool(spec.model.n_layers % len(spec.model.pattern))  # Gemma 3 ends in half a round
    doubts.append("model.vocab_size")  # the tokenizer is of bytes while nobody gives another
    assert [finding.path for finding in report.findings if finding.status is Status.WARN] == doubts


def test_a_slot_that_a_changed_pattern_leaves_over_is_seen():
    changed = load(compose(["arch=gemma2_2b", "model.pattern=[attention+ffn]"]))
    assert [finding.path for finding in check(changed, probes=False, trains=False).failures] == ["model.local"]

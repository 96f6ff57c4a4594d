"""Llama's descendants: every field of theirs changes our model as it changes theirs, or is refused by its name."""

import json

import pytest
import torch
import transformers as tf

from builder import ArchlabError, build, compose, export_hf, import_hf, load
from builder.interop.facts import Facts
from builder.interop.family import find
from builder.interop.hf_config import HFConfig
from builder.interop.windows import tile
from tests.interop.cases import CASES, FAR, NEAR
from tests.interop.conftest import fields, ids, made, ours

LINEAR = {"rope_type": "linear", "factor": 4.0}
CHANGES = [
    ("mistral", {"sliding_window": 5}),
    ("mistral", {"sliding_window": None}),
    ("mistral", {"hidden_act": "gelu"}),
    ("qwen2 windows above", {"sliding_window": 5}),
    ("qwen2 windows above", {"use_sliding_window": False, "layer_types": None}),
    ("qwen2 windows above", {"layer_types": None, "max_window_layers": 4}),
    ("qwen2 windows above", {"layer_types": [NEAR, FAR, FAR, FAR, FAR]}),
    ("qwen2", {"rope_parameters": LINEAR | {"rope_theta": 500.0}}),
    ("qwen3", {"rms_norm_eps": 0.1}),
    ("gemma2", {"attn_logit_softcapping": None}),
    ("gemma2", {"final_logit_softcapping": None}),
    ("gemma2", {"query_pre_attn_scalar": 7}),
    ("gemma2", {"hidden_activation": "silu"}),
    ("gemma2", {"layer_types": [FAR, NEAR, FAR]}),
    ("gemma2", {"rope_parameters": None, "rope_theta": 50.0}),
    ("gemma3_text", {"layer_types": None, "sliding_window_pattern": 2}),
    ("gemma3_text", {"rope_parameters": None, "rope_theta": 100.0, "rope_local_base_freq": 20.0}),
    ("gemma3_text", {"rope_parameters": None, "rope_scaling": LINEAR, "rope_theta": 50.0}),
    ("gemma3_text", {"rope_parameters": {NEAR: {"rope_type": "default", "rope_theta": 50.0}}}),
    ("gemma3_text", {"final_logit_softcapping": 2.0}),
    ("olmo2", {"rms_norm_eps": 0.1}),
]
REFUSED = [
    ("mistral", {"layer_types": [NEAR, FAR]}),
    ("mistral", {"partial_rotary_factor": 0.5}),
    ("mistral", {"attention_bias": True}),
    ("qwen2", {"layer_types": [NEAR, FAR]}, "sliding_window"),  # and use_sliding_window is false
    ("qwen2", {"layer_types": [FAR]}),
    ("qwen2", {"layer_types": [FAR, "chunked_attention"]}),
    ("qwen2", {"use_mrope": True}),
    ("qwen3", {"attention_bias": ["q"]}),
    ("gemma2", {"sliding_window": None}),
    ("gemma2", {"use_bidirectional_attention": True}),
    ("gemma2", {"query_pre_attn_scalar": 0}),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}),
    ("gemma3_text", {"rope_local_base_freq": 5.0}),
    ("gemma3_text", {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "base": 3}}, "rope_scaling.base"),
    ("olmo2", {"clip_qkv": 8.0}),
]
PUBLISHED = {  # sizes and parameters as the cards on the hub have them
    "mistral": ((32000, 4096, 32, 32, 8, 14336), {}, 7_241_732_096),
    "qwen2": ((151936, 896, 24, 14, 2, 4864), {"tie_word_embeddings": True}, 494_032_768),
    "qwen3": ((151936, 1024, 28, 16, 8, 3072), {"tie_word_embeddings": True}, 596_049_920),
    "gemma2": ((256000, 2304, 26, 8, 4, 9216), {}, 2_614_341_888),
    "gemma3_text": ((262144, 1152, 26, 4, 1, 6912), {"sliding_window": 512}, 999_885_952),
    "olmo2": ((100352, 4096, 32, 32, 32, 11008), {"max_position_embeddings": 4096}, 7_298_617_344),
}
NAMES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "intermediate_size"),
)


@pytest.fixture
def saved(tmp_path):
    def save(name):
        config, values = CASES[name]
        made(config(**values)).save_pretrained(tmp_path)
        return tmp_path

    return save


@pytest.mark.parametrize(("name", "values"), CHANGES)
def test_a_field_means_what_it_means_to_them(saved, change, name, values):
    folder, tokens = saved(name), ids(3, 24)
    before = ours(folder)(tokens).logits
    change(folder, **values)
    theirs = tf.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    after = ours(folder)(tokens).logits
    assert (after - theirs(tokens).logits).abs().max() <= 1e-4
    assert (after - before).abs().max() > 1e-3


@pytest.mark.parametrize(("name", "values", "named"), [(*case, *case[1])[:3] for case in REFUSED])
def test_a_field_that_is_not_served_is_named(saved, change, name, values, named):
    folder = saved(name)
    import_hf(folder)
    change(folder, **values)
    with pytest.raises(ArchlabError, match=rf"config\.json: {named}"):
        import_hf(folder)


@pytest.mark.parametrize("model_type", PUBLISHED)
def test_published_sizes_have_the_published_number_of_parameters(model_type):
    sizes, more, parameters = PUBLISHED[model_type]
    spec = find(model_type).spec(HFConfig(dict(zip(NAMES, sizes, strict=True)) | more))
    assert sum(parameter.numel() for parameter in build(spec, device="meta").parameters()) == parameters


def test_gemma_3_is_read_from_the_fields_of_its_first_release():
    sizes, more, _ = PUBLISHED["gemma3_text"]
    old = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6, "rope_scaling": None}
    old |= {"cache_implementation": "hybrid", "attn_logit_softcapping": None}
    spec = find("gemma3_text").spec(HFConfig(dict(zip(NAMES, sizes, strict=True)) | more | old))
    seen = Facts(spec).each("attention.window")
    assert seen == ([512] * 5 + [None]) * 4 + [512] * 2 and len(spec.pattern) == 6
    thetas = Facts(spec).each("attention.position.theta")
    assert thetas == [1e4 if window else 1e6 for window in seen]


def test_what_is_missing_and_what_is_null():
    sizes = dict(zip(NAMES, PUBLISHED["mistral"][0], strict=True))
    kind = find("mistral")
    assert Facts(kind.spec(HFConfig(sizes)))["attention.window"] == 4096
    assert Facts(kind.spec(HFConfig(sizes | {"sliding_window": None})))["attention.window"] is None


@pytest.mark.parametrize("kinds", ["a", "aaa", "ab", "aba", "aabaabaa", "aab", "aabab"])
def test_a_tile_gives_the_list_back(kinds):
    short = tile(list(kinds))
    assert [short[layer % len(short)] for layer in range(len(kinds))] == list(kinds)
    assert "".join(short) == {"aaa": "a", "aba": "ab", "aabaabaa": "aab"}.get(kinds, kinds)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("qwen2 windows above", {"max_window_layers": 2, "use_sliding_window": True, "sliding_window": 4}),
        ("qwen2", {"max_window_layers": 2, "use_sliding_window": False}),
        ("gemma3_text two scales, bounded, untied", {"rope_local_base_freq": 50.0, "sliding_window_pattern": 3}),
        ("gemma3_text two scales, bounded, untied", {"rope_theta": 500.0, "rope_scaling": LINEAR}),
    ],
)
def test_earlier_versions_find_their_fields(saved, tmp_path, name, wanted):
    export_hf(ours(saved(name)), tmp_path / "out", family=name.split()[0])
    written = fields(tmp_path / "out")
    assert {key: written[key] for key in wanted} == wanted


def test_only_a_period_is_written_as_one(saved, tmp_path):
    export_hf(ours(saved("gemma3_text without a period")), tmp_path / "out", family="gemma3_text")
    assert "sliding_window_pattern" not in fields(tmp_path / "out")


def model(*overrides):
    sizes = ["model.d_model=32", "model.n_layers=2", "model.train_length=16", "model.ffn.d_ff=48"]
    return build(load(compose([*sizes, "model.attention.n_heads=4", *overrides])).model, seed=0)


@pytest.mark.parametrize(
    ("overrides", "model_type", "reason"),
    [
        (["model.position.fraction=0.5"], "llama", "fraction is 0.5"),
        (["model.attention.bias=[q,k,v]"], "llama", "bias is"),
        (["model.attention.window=4", "model.attention.scale=0.3"], "mistral", "scale is 0.3"),
        (["+model.local={name: gqa, n_heads: 2, window: 4}", "model.pattern=[local+ffn,attention+ffn]"], "qwen3", "n_"),
    ],
)
def test_what_they_would_pass_over_is_not_written(tmp_path, overrides, model_type, reason):
    with pytest.raises(ArchlabError, match=reason):
        export_hf(model(*overrides), tmp_path / "out", family=model_type)


def test_two_windows_have_no_field(tmp_path):
    local = ["+model.local={name: gqa, n_heads: 4, n_kv_heads: 2, bias: [q, k, v], window: 4}"]
    base = ["model.attention.bias=[q,k,v]", "model.pattern=[local+ffn,attention+ffn]", *local]
    export_hf(model(*base), tmp_path / "one", family="qwen2")
    assert json.loads((tmp_path / "one/config.json").read_text())["layer_types"] == [NEAR, FAR]
    with pytest.raises(ArchlabError, match="window is 8"):
        export_hf(model(*base, "model.attention.window=8"), tmp_path / "two", family="qwen2")


def test_a_norm_too_many_is_seen(saved):
    """The negative control: the parts of OLMo 2 read the stream as it is."""
    folder = saved("olmo2")
    mine, tokens = ours(folder), ids(3, 24)
    before = mine(tokens).logits
    for layer in mine.layers:
        layer.mixer.register_forward_pre_hook(
            lambda _, inputs: (torch.nn.functional.rms_norm(inputs[0], (32,)), *inputs[1:])
        )
    assert (mine(tokens).logits - before).abs().max() > 1e-3

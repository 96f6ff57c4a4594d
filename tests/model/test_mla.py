"""Multi-head latent attention against transformers' DeepSeek-V3 and V2, and its two orders of one product."""

from importlib import import_module

import pytest
import torch

from builder.components.attention.mla import MLA
from tests.choices import slot

H, PLAIN, TURNED, VALUE, RANK = 4, 6, 4, 5, 8
SIZES = {
    "vocab_size": 37, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": H,
    "num_key_value_heads": H, "kv_lora_rank": RANK, "qk_nope_head_dim": PLAIN, "qk_rope_head_dim": TURNED,
    "v_head_dim": VALUE, "first_k_dense_replace": 2, "n_routed_experts": 2, "n_group": 1, "topk_group": 1,
    "num_experts_per_tok": 1, "moe_intermediate_size": 8, "rms_norm_eps": 1e-6, "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "tie_word_embeddings": False,
    "attn_implementation": "eager", "pad_token_id": 0,
}  # fmt: skip
NAMES = {
    "mixer.q_a": "self_attn.q_a_proj", "mixer.q_norm": "self_attn.q_a_layernorm", "mixer.kv_a":
    "self_attn.kv_a_proj_with_mqa", "mixer.kv_norm": "self_attn.kv_a_layernorm", "mixer.kv_b": "self_attn.kv_b_proj",
    "mixer.o": "self_attn.o_proj", "ffn.gate": "mlp.gate_proj", "ffn.up": "mlp.up_proj", "ffn.down": "mlp.down_proj",
    "mixer_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
# their family, what of theirs changes, the pairing it means
FAMILIES = {
    "v3": ("deepseek_v3", "DeepseekV3", {"rope_interleave": False}, "half"),
    "v3 interleaved": ("deepseek_v3", "DeepseekV3", {"rope_interleave": True}, "interleaved"),
    "v2": ("deepseek_v2", "DeepseekV2", {}, "interleaved"),
}


def mla(**knobs):
    sizes = {"n_heads": H, "kv_rank": RANK, "d_head": PLAIN, "d_rope": TURNED, "d_value": VALUE}
    return {"name": "mla", **sizes, **knobs}


def theirs(family, q_rank):
    module, prefix, facts, _ = FAMILIES[family]
    home = f"transformers.models.{module}"
    config = getattr(import_module(f"{home}.configuration_{module}"), f"{prefix}Config")
    model = getattr(import_module(f"{home}.modeling_{module}"), f"{prefix}ForCausalLM")
    model = model(config(**SIZES | facts, q_lora_rank=q_rank)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    return model


def weights(model, q_rank):
    state = {"embedding.weight": model.model.embed_tokens.weight, "head.weight": model.lm_head.weight}
    state["final_norm.weight"] = model.model.norm.weight
    names = {"mixer.q_b": "self_attn.q_b_proj" if q_rank else "self_attn.q_proj"} | NAMES
    for i, block in enumerate(model.model.layers):
        for ours, part in names.items():
            if q_rank or ours not in ("mixer.q_a", "mixer.q_norm"):
                state[f"layers.{i}.{ours}.weight"] = block.get_submodule(part).weight
    return {name: weight.detach().clone() for name, weight in state.items()}


@pytest.fixture
def both(tiny):
    def pair(family, q_rank, **changes):
        right = theirs(family, q_rank)
        position = {"name": "rope", "theta": 500.0, "pairing": FAMILIES[family][3]}
        ours = tiny(**{"attention": mla(q_rank=q_rank), "position": position, "tie_embeddings": False} | changes)
        ours.load_state_dict(weights(right, q_rank), strict=True)
        return ours, right

    return pair


@pytest.mark.parametrize("q_rank", [None, 12])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_equal_theirs_in_full_and_cached(both, ids, family, q_rank):
    ours, right = both(family, q_rank)
    tokens = ids(2, 12)
    expected = right(tokens).logits
    assert (ours(tokens).logits - expected).abs().max() <= 1e-5 * max(1, expected.abs().max())
    state, cache = ours.new_state(2, 12), None
    for part in tokens.split((6, 1, 4, 1), dim=1):
        out = right(part, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        assert (ours(part, state=state).logits - out.logits).abs().max() <= 1e-5 * max(1, expected.abs().max())


@torch.no_grad()
def test_another_pairing_or_scale_is_seen(both, ids):
    tokens = ids(2, 12)
    for change in (
        {"position": {"name": "rope", "theta": 500.0, "pairing": "interleaved"}},
        {"attention": mla(q_rank=12, scale=PLAIN**-0.5)},
    ):
        ours, right = both("v3", 12, **change)
        assert (ours(tokens).logits - right(tokens).logits).abs().max() > 1e-2


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("knobs", [{}, {"window": 4}, {"sinks": True}, {"softcap": 2.0}, {"d_value": None}], ids=str)
@pytest.mark.parametrize("position", ["rope", "alibi"])
@torch.no_grad()
def test_within_the_latent_equals_widened(tiny, ids, monkeypatch, queries, knobs, position):
    model, tokens = tiny(torch.float64, attention=mla(**knobs), position=position), ids(2, 9)
    taken, found = [], []
    within, widened = MLA._within, MLA._widened
    for way in (within, widened):
        monkeypatch.setattr(MLA, "_within", lambda *args, way=way: taken.append(way) or way(*args))
        monkeypatch.setattr(MLA, "_widened", lambda *args, way=way: taken.append(way) or way(*args))
        state = model.new_state(2, 9)
        found.append(torch.cat([model(part, state=state).logits for part in tokens.split(queries, dim=1)], dim=1))
    assert set(taken) == {within, widened} and (found[0] - found[1]).abs().max() <= 1e-10
    monkeypatch.undo()
    assert (found[0] - model(tokens).logits).abs().max() <= 1e-10


@torch.no_grad()
def test_decode_stays_within_the_latent_and_prefill_is_widened(tiny, ids, monkeypatch):
    model, tokens, taken = tiny(attention=mla(kv_rank=8)), ids(1, 60), []
    for name in ("_within", "_widened"):
        real = getattr(MLA, name)
        monkeypatch.setattr(MLA, name, lambda *args, real=real, name=name: taken.append(name) or real(*args))
    state = model.new_state(1, 60)
    for part, way in ((tokens[:, :50], "_widened"), (tokens[:, 50:51], "_within"), (tokens[:, 51:52], "_within")):
        taken.clear()
        model(part, state=state)
        assert set(taken) == {way}
    taken.clear()
    model(tokens)
    assert set(taken) == {"_widened"}, "training makes keys and values"


def test_the_state_holds_the_latent_and_the_turned_key_alone(tiny):
    layers, float32 = 2, 4
    model = tiny(attention=mla())
    assert model.new_state(3, 7).bytes() == 3 * 7 * (RANK + TURNED) * layers * float32
    multi_head = tiny(attention={"name": "gqa", "n_heads": H, "d_head": PLAIN + TURNED}).new_state(3, 7).bytes()
    assert multi_head == 3 * 7 * 2 * H * (PLAIN + TURNED) * layers * float32 > model.new_state(3, 7).bytes()


@pytest.mark.parametrize("q_rank", [None, 12])
def test_parameters_follow_the_formula(tiny, q_rank):
    d, queries = 32, H * (PLAIN + TURNED)
    asked = d * queries if q_rank is None else d * q_rank + q_rank + q_rank * queries  # with the latent's norm
    kept = d * (RANK + TURNED) + RANK + RANK * H * (PLAIN + VALUE)
    mixer = tiny(attention=mla(q_rank=q_rank)).layers[0].mixer
    assert sum(p.numel() for p in mixer.parameters()) == asked + kept + H * VALUE * d


@torch.no_grad()
def test_without_position_it_is_attention_with_its_own_keys_and_values(tiny, ids):
    """A float64 formula: keys and values written out of the latent, and torch's own attention."""
    model = tiny(torch.float64, attention=mla(window=3), position="none", n_layers=1)
    mixer, seen = model.layers[0].mixer, {}
    mixer.register_forward_hook(lambda _, args, out: seen.update(x=args[0], out=out))
    model(ids(2, 7))
    x = seen["x"]
    c, k_turned = mixer.kv_a(x).split((RANK, TURNED), -1)
    kv = (mixer.kv_norm(c) @ mixer.kv_b.weight.T).view(2, 7, H, PLAIN + VALUE)
    keys = torch.cat((kv[..., :PLAIN], k_turned[:, :, None].expand(-1, -1, H, -1)), -1)
    queries = (x @ mixer.q_b.weight.T).view(2, 7, H, PLAIN + TURNED)
    scores = torch.einsum("bthe,bshe->bhts", queries, keys) / (PLAIN + TURNED) ** 0.5
    ahead = torch.arange(7) - torch.arange(7)[:, None]
    weights = scores.masked_fill((ahead > 0) | (ahead <= -3), -torch.inf).softmax(-1)
    read = torch.einsum("bhts,bshv->bthv", weights, kv[..., PLAIN:]).flatten(-2)
    assert (read @ mixer.o.weight.T - seen["out"]).abs().max() <= 1e-12
    wrong = scores.softmax(-1)
    assert (torch.einsum("bhts,bshv->bthv", wrong, kv[..., PLAIN:]).flatten(-2) - read).abs().max() > 1e-2


def test_the_yaml_builds(tiny, ids):
    assert tiny(attention=slot("attention", "mla"))(ids(1, 4)).logits.isfinite().all()

"""What a position scheme does in a whole model: shifts, padding, states, packed rows, scaled angles, one graph."""

import pytest
import torch

from builder import build, check, compose, load

LISTS = {"short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [1.0, 4.0, 8.0, 16.0]}
SCHEMES = {
    "rope": {"name": "rope"},
    "interleaved": {"name": "rope", "pairing": "interleaved", "fraction": 0.5},
    "linear": {"name": "rope", "scaling": {"name": "linear", "factor": 4.0}},
    "dynamic": {"name": "rope", "scaling": {"name": "dynamic", "factor": 4.0}},
    "yarn": {"name": "rope", "pairing": "interleaved", "scaling": {"name": "yarn", "factor": 4.0}},
    "llama3": {"name": "rope", "scaling": {"name": "llama3", "factor": 8.0, "original_length": 16}},
    "longrope": {"name": "rope", "scaling": {"name": "longrope", **LISTS}},
    "alibi": {"name": "alibi"},
    "t5": {"name": "t5", "n_buckets": 8, "max_distance": 16},
}


@pytest.fixture(params=SCHEMES)
def relative(request):
    """The slot of each scheme that knows distances alone."""
    return SCHEMES[request.param]


def off(logits, right):
    return (logits - right).abs().max().item()


@torch.no_grad()
def test_relative_schemes_do_not_see_a_shift(tiny, ids, relative):
    model, tokens, at = tiny(position=relative), ids(2, 12), torch.arange(12).repeat(2, 1)
    plain, shifted = (model(tokens, positions=at + by).logits for by in (0, 100))
    assert off(shifted, plain) <= 1e-4
    assert off(model(tokens, positions=at * 2).logits, plain) > 1e-3


@pytest.mark.parametrize("position", [{"name": "learned", "length": 128}, {"name": "sinusoidal"}])
@torch.no_grad()
def test_absolute_schemes_see_a_shift(tiny, ids, position):
    model, tokens, at = tiny(position=position), ids(2, 12), torch.arange(12).repeat(2, 1)
    assert off(model(tokens, positions=at + 100).logits, model(tokens, positions=at).logits) > 1e-2


@pytest.mark.parametrize("pads", [1, 3, 20])
@torch.no_grad()
def test_left_padding_changes_nothing(tiny, ids, relative, pads):
    model, row = tiny(position=relative), ids(1, 5)
    tokens = torch.cat((ids(1, pads, seed=1), row), dim=1)
    real = torch.arange(pads + 5)[None] >= pads
    assert off(model(tokens, attention_mask=real).logits[:, pads:], model(row).logits) <= 1e-5


def decoded(model, tokens, split, length):
    state = model.new_state(len(tokens), length)
    return torch.cat([model(part, state=state).logits for part in tokens.split(split, dim=1)], dim=1)


@pytest.mark.parametrize("split", [[1] * 12, [5, 1, 1, 1, 1, 1, 1, 1], [11, 1]], ids=str)
@torch.no_grad()
def test_a_state_changes_nothing(tiny, ids, relative, split):
    model, tokens = tiny(position=relative), ids(2, 12)
    assert off(decoded(model, tokens, split, 12), model(tokens).logits) <= 1e-5


@torch.no_grad()
def test_documents_of_a_packed_row_are_read_as_if_alone(tiny, ids, relative):
    model, tokens = tiny(position=relative), ids(1, 12)
    packed = model(tokens, segments=torch.tensor([[0] * 5 + [1] * 7])).logits
    alone = [model(part).logits for part in tokens.split((5, 7), dim=1)]
    assert off(packed, torch.cat(alone, dim=1)) <= 1e-5
    assert off(packed, model(tokens).logits) > 1e-3


@pytest.mark.parametrize("name", ["dynamic", "longrope"])
@torch.no_grad()
def test_angles_that_follow_the_length_are_those_of_the_whole_sequence(tiny, ids, name):
    model, tokens = tiny(position=SCHEMES[name], train_length=6, deploy_length=24), ids(2, 12)
    full = model(tokens).logits
    assert off(full, tiny(position=SCHEMES[name], train_length=12, deploy_length=24)(tokens).logits) > 1e-3
    for split in ([1] * 12, [4, 1, 1, 1, 1, 1, 1, 1, 1], [7, 5]):
        assert off(decoded(model, tokens, split, 12), full) <= 1e-5
    short = tokens[:, :6]
    assert off(decoded(model, short, [6], 6), model(short).logits) <= 1e-5
    assert off(decoded(model, short, [6], 12), model(short).logits) > 1e-3, "a longer state is turned otherwise"


@pytest.mark.parametrize("name", ["alibi", "t5"])
@torch.no_grad()
def test_biases_that_vanish_are_seen(tiny, ids, name, monkeypatch):
    model, tokens = tiny(position=SCHEMES[name]), ids(2, 12)
    full = model(tokens).logits
    scheme = type(model.positions["model"])
    monkeypatch.setattr(scheme, "bias", lambda *_: None)
    assert off(decoded(model, tokens, [1] * 12, 12), full) > 1e-2


@pytest.mark.parametrize("scaling", ["linear", "dynamic", "yarn", "llama3", "longrope"])
def test_a_scaling_is_composed_and_passes_the_checklist(scaling):
    lists = [f"model.position.scaling.{key}=[{','.join(map(str, range(1, 17)))}]" for key in LISTS]
    chosen = [f"model/scaling@model.position.scaling={scaling}", "model.deploy_length=256"]
    chosen += ["model.position.scaling.original_length=128"]  # that of an earlier training, without it
    spec = load(compose([*chosen, *(lists if scaling == "longrope" else ())]))
    assert spec.model.position.scaling.name == scaling
    report = check(spec)
    assert report.ok, str(report)
    assert [f.status for f in report.findings if f.path == "model.position.scaling"] == ["PASS"]


def test_lists_of_another_width_fail_the_checklist():
    lists = [f"model.position.scaling.{key}=[1,2]" for key in LISTS]
    report = check(load(compose(["model/scaling@model.position.scaling=longrope", *lists])), probes=False)
    assert any("2 entries for 16 pairs" in finding.rule for finding in report.failures)


@pytest.mark.parametrize("position", ["alibi", "t5"])
def test_mixers_of_different_sizes_can_not_share_biases(position):
    two = ["model/attention@model.local=gqa", "model.local.n_heads=8", "model.pattern=[local+ffn,attention+ffn]"]
    report = check(load(compose([f"model/position={position}", *two])), probes=False)
    (finding,) = [finding for finding in report.failures if finding.section == 3]
    assert finding.path == "model.position" and "8 heads of local" in finding.found
    assert "4 heads of attention" in finding.found
    key, _, value = finding.fix.partition("=")
    mended = check(load(compose([f"model/position={position}", *two, f"{key}={value}"])))
    assert mended.ok, str(mended)


def test_an_odd_rotary_width_is_refused_whatever_the_pairing():
    """C12: the rotary width counts, not the head's."""
    for pairing in ("half", "interleaved"):
        odd = [f"model.position.pairing={pairing}", "model.position.fraction=0.2"]  # 6 of 32, then 5 of 28
        assert check(load(compose(odd)), probes=False).ok
        report = check(load(compose([*odd, "model.attention.d_head=28"])), probes=False)
        assert any("must be even" in finding.rule for finding in report.failures)


def test_schemes_are_built_empty_and_move_with_the_model(spec, relative):
    model = build(spec(position=relative), device="meta")
    assert all(tensor.is_meta for tensor in model.state_dict().values())
    keys = [key for key in model.state_dict() if key.startswith("positions")]
    assert keys == (["positions.model.weight"] if relative["name"] == "t5" else [])


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", SCHEMES)
def test_a_pass_is_one_graph_for_the_compiler(tiny, ids, name):
    model, tokens = tiny(position=SCHEMES[name]), ids(2, 12)
    right = model(tokens).logits
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert off(compiled(tokens).logits, right) <= 1e-5

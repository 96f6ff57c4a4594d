"""The documents' worked examples: three tokens of width 4, four of width 8, eight heads of 64 in a width of 512."""

import math

import pytest
import torch

from builder.components.kernel import Scoring
from builder.components.kernel.eager import weigh
from builder.model.mask import Mask

INF = math.inf


def weights_of(mixer, x, mask=None):
    """The attention weights of a mixer's own queries and keys, (H, T, S)."""
    q, k = (mixer.get_submodule(part)(x).unflatten(-1, (-1, mixer.width)) for part in "qk")
    return weigh(q, k, Scoring(mask or Mask(), mixer.scale))[0]


@pytest.fixture
def three(attention):
    """我的 / 名字 / 是: X (3, 4), W_Q, W_K, W_V (4, 2), one head."""
    mixer, x = attention(4, n_heads=1, d_head=2), torch.randn(1, 3, 4, dtype=torch.float64)
    for part in "qkv":
        assert mixer.get_submodule(part).weight.T.shape == (4, 2)
    return mixer, x


def test_three_tokens_the_mask_is_added_before_the_softmax(three, passes):
    mixer, x = three
    q, k, v = (x[0] @ mixer.get_submodule(part).weight.T for part in "qkv")
    mask = torch.tensor([[0, -INF, -INF], [0, 0, -INF], [0, 0, 0]], dtype=torch.float64)
    assert torch.equal(Mask().dense(3, 3, x.device)[0, 0], mask == 0)
    weights = torch.softmax(q @ k.T / 2**0.5 + mask, dim=-1)
    assert torch.allclose(weights_of(mixer, x)[0], weights, atol=1e-14)
    out = passes(mixer).forward(x)
    assert out.shape == (1, 3, 4) and (weights @ v).shape == (3, 2)
    assert torch.allclose(out[0], weights @ v @ mixer.o.weight.T, atol=1e-14), "O (3, 2) goes through W_O to d_model"
    bare = torch.softmax(q @ k.T / 2**0.5, dim=-1) @ v @ mixer.o.weight.T
    assert (out[0] - bare)[:2].abs().max() > 1e-2, "without the mask the first rows differ"


def test_three_tokens_decode_reads_what_prefill_left(three, passes):
    """o_t = softmax(q_t K_<=t^T / sqrt(d_k)) V_<=t: the prompt of two is read once, then one token at a time."""
    mixer, x = three
    run = passes(mixer)
    prompt = run.forward(x[:, :2], remember=True)
    last = run.forward(x[:, 2:], remember=True)
    whole = passes(mixer).forward(x)
    assert torch.allclose(torch.cat((prompt, last), 1), whole, atol=1e-14)
    assert (passes(mixer).forward(x[:, 2:]) - whole[:, 2:]).abs().max() > 1e-2, "without the cache it is another"
    keys = x[0] @ mixer.k.weight.T
    assert torch.allclose(run.layer.keys[0, 0, :3], keys, atol=1e-14), "k_t and v_t are kept, and no query"
    assert {name for name, held in vars(run.layer).items() if torch.is_tensor(held)} == {"keys", "values"}


def test_scores_far_apart_saturate():
    """[1, 2, 20] gives very nearly [0, 0, 1], and [1, 2, 20] / sqrt(64) does not."""
    q, k = torch.ones(1, 1, 1, 1).double(), torch.tensor([1.0, 2.0, 20.0]).double().view(1, 3, 1, 1)
    far, near = (weigh(q, k, Scoring(Mask(causal=False), scale))[0, 0, 0] for scale in (1.0, 1 / 8))
    assert torch.allclose(far, torch.tensor([0.0, 0.0, 1.0]).double(), atol=1e-7)
    assert near.max() < 0.85 and abs(near.sum() - 1) < 1e-14


@pytest.fixture
def four(attention):
    """Four tokens of width 8, one head."""
    return attention(8, n_heads=1), torch.randn(1, 4, 8, dtype=torch.float64)


def test_four_tokens_weights_form_a_lower_triangle(four):
    mixer, x = four
    weights = weights_of(mixer, x)[0]
    assert weights.shape == (4, 4) and weights[0].tolist() == [1, 0, 0, 0]
    later = torch.arange(4) > torch.arange(4)[:, None]
    assert (weights[later] == 0).all() and (weights[~later] > 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(4).double(), atol=1e-14)
    assert (weights_of(mixer, x, Mask(causal=False))[0][later] > 0).all()


def test_four_tokens_a_new_token_adds_the_last_row_alone(four, passes):
    """Rows 1 to 3 stand; the new column is hidden from them; the step computes 1 x 4 scores and not 4 x 4."""
    mixer, x = four
    before, after = weights_of(mixer, x[:, :3])[0], weights_of(mixer, x)[0]
    assert torch.allclose(after[:3, :3], before, atol=1e-14) and (after[:3, 3] == 0).all()
    run = passes(mixer)
    run.forward(x[:, :3], remember=True)
    assert run.told("scores") == (1, 1, 3, 3)
    last = run.forward(x[:, 3:], remember=True)
    assert run.told("Q") == (1, 1, 1, 8) and run.told("K, V") == (1, 1, 4, 8) and run.told("scores") == (1, 1, 1, 4)
    values = x[0] @ mixer.v.weight.T
    assert torch.allclose(last[0, 0], after[3] @ values @ mixer.o.weight.T, atol=1e-14)
    assert (last[0, 0] - after[2] @ values @ mixer.o.weight.T).abs().max() > 1e-2, "the row before is another"


@pytest.fixture
def eight(attention):
    """d_model 512, h 8, d_k = d_v = 64."""
    return attention(512, n_heads=8)


def test_eight_heads_of_64_have_the_shapes_of_the_example(eight, passes):
    assert eight.width == 512 // 8 == 64 and eight.scale == 1 / 8
    for part in "qkv":  # W^(r) (512, 64) for each of the 8 heads
        assert eight.get_submodule(part).weight.T.unflatten(1, (8, 64))[:, 0].shape == (512, 64)
    assert eight.o.weight.T.shape == (512, 512)
    run = passes(eight)
    assert run.forward(torch.randn(1, 5, 512, dtype=torch.float64)).shape == (1, 5, 512)
    assert run.told("Q") == run.told("weighted values") == (1, 8, 5, 64)
    assert run.told("scores") == (1, 8, 5, 5) and run.told("concat") == (1, 5, 512)


def test_eight_heads_are_eight_attentions_side_by_side(eight, passes):
    """MultiHead(X) = Concat(head_1 .. head_8) W_O, as the encoder of the example reads both ways."""
    x = torch.randn(1, 5, 512, dtype=torch.float64)
    heads = []
    for r in range(8):
        q, k, v = (x[0] @ eight.get_submodule(part).weight[64 * r : 64 * r + 64].T for part in "qkv")
        heads.append(torch.softmax(q @ k.T / 8, dim=-1) @ v)
    out = passes(eight).forward(x, causal=False)[0]
    assert torch.allclose(out, torch.cat(heads, -1) @ eight.o.weight.T, atol=1e-12)
    assert (out - torch.cat(heads[::-1], -1) @ eight.o.weight.T).abs().max() > 1e-2
    assert (out - passes(eight).forward(x)[0]).abs().max() > 1e-2, "a decoder sees less"


def test_eight_heads_one_token_reads_all_values_by_its_weights(eight):
    """z_i = sum_j a_ij v_j with every a_ij > 0 and each row summing to 1."""
    x = torch.randn(1, 5, 512, dtype=torch.float64)
    weights = weights_of(eight, x, Mask(causal=False))
    assert weights.shape == (8, 5, 5) and (weights > 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(8, 5).double(), atol=1e-14)
    assert not torch.allclose(weights.sum(-2), torch.ones(8, 5).double(), atol=1e-2), "columns don't"

"""The probe's own FLOP counter against torch's, product by product."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from builder.checklist.probes import specimen
from builder.checklist.probes.costs import Counter, prove
from builder.finding import Status

A, M, N = torch.randn(2, 5, 6), torch.randn(6, 7), torch.randn(2, 6, 7)
Q, K, V = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
PRODUCTS = {
    "matmul": lambda: torch.matmul(A, N),
    "matmul, broadcast": lambda: A @ M,
    "method": lambda: A.matmul(N),
    "mm": lambda: torch.mm(A[0], M),
    "bmm": lambda: torch.bmm(A, N),
    "linear": lambda: F.linear(A, M.T),
    "linear with bias": lambda: F.linear(A, M.T, torch.zeros(7)),
    "linear with keywords": lambda: F.linear(input=A, weight=M.T),
    "einsum": lambda: torch.einsum("bij,bjk->bik", A, N),
    "einsum without an arrow": lambda: torch.einsum("bij,jk", A, M),
    "einsum with dots": lambda: torch.einsum("...ij,jk->...ik", A, M),
    "attention": lambda: torch.einsum("bhts,bhse->bhte", torch.einsum("bhte,bhse->bhts", Q[:, :2], K), V),
    "convolution": lambda: F.conv1d(A, torch.randn(4, 5, 3), padding=1),
    "grouped convolution": lambda: F.conv1d(N.transpose(1, 2)[:, :6], torch.randn(6, 1, 3), groups=6),
    "baddbmm": lambda: torch.baddbmm(torch.zeros(2, 5, 7), A, N),
    "addmm": lambda: torch.addmm(torch.zeros(5, 7), A[0], M),
    "transposed convolution": lambda: F.conv_transpose1d(A, torch.randn(5, 4, 3), stride=2),
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_costs_what_torch_counts(product):
    with Counter() as ours:
        PRODUCTS[product]()
    with FlopCounterMode(display=False) as theirs:
        PRODUCTS[product]()
    assert ours.total == theirs.get_total_flops() > 0


def test_products_with_a_vector_count_where_torch_leaves_them_out():
    for product, right in ((lambda: A[0] @ M[:, 0], 2 * 5 * 6), (lambda: M[:, 0] @ M[:, 1], 2 * 6)):
        with Counter() as ours:
            product()
        assert ours.total == right


@pytest.mark.parametrize(
    ("equation", "flops"),
    [("bti,bsi->bts", 2 * 2 * 5 * 5), ("...ti,...si", 2 * 2 * 5 * 5), ("bti,bti->bti", 0), ("bti,bti->bt", 2 * 2 * 5)],
)
def test_a_sum_over_a_single_number_counts_where_torch_leaves_it_out(equation, flops):
    with Counter() as ours:
        torch.einsum(equation, A[..., :1], A[..., 1:2])
    assert ours.total == flops


@pytest.mark.parametrize("attention", ["gqa", "mla"])
def test_heads_as_wide_as_one_number_cost_what_they_state(run, attention):
    """32 heads at width 32, where nothing turns pairs of numbers; and a cost that is stated half is still seen."""
    widths = {"gqa": {}, "mla": {"kv_rank": 1, "d_head": 1, "d_rope": 2}}[attention]
    slot = {"name": attention, "n_heads": 32, **widths}
    scheme = {"name": "none" if attention == "gqa" else "rope"}
    copy = specimen(run({"model.attention": slot, "model.position": scheme}).model)
    assert next(prove(copy)).status is Status.PASS
    copy.model.flops = lambda tokens: type(copy.model).flops(copy.model, tokens) - 1
    assert next(prove(copy)).status is Status.FAIL


def test_fused_attention_costs_its_two_products():
    with Counter() as counter:
        F.scaled_dot_product_attention(Q, K, V, enable_gqa=True)
    assert counter.total == 2 * (2 * 4 * 5 * 9 * 8) * 2
    with Counter() as counter:
        F.scaled_dot_product_attention(query=Q, key=K, value=V, enable_gqa=True)
    assert counter.total == 2 * (2 * 4 * 5 * 9 * 8) * 2


def test_element_wise_work_costs_nothing():
    with Counter() as counter:
        (A * A + A).softmax(-1).sum()
    assert counter.total == 0

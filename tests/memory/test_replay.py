"""What is answered from memory is what torch gives: of operations as of real tensors, of steps as when played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from builder.memory import forecast, replay
from builder.memory.watch import Watch
from tests.memory.test_forecast import CASES, spec_of

OPERATIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "fresh": lambda x, y: x @ y,
    "other strides": lambda x, y: x.t() + y,
    "other dtype": lambda x, y: x.to(torch.bfloat16),
    "of a number": lambda x, y: x * 2,
    "of another number": lambda x, y: x * 2.5,
    "in place": lambda x, y: x.add_(y),
    "view": lambda x, y: x[1:].t(),
    "view behind it": lambda x, y: x[2:].t(),
    "views": lambda x, y: x.unbind(1),
    "several": lambda x, y: torch.topk(x, 2),
    "some of several": lambda x, y: torch.ops.aten.native_layer_norm_backward(
        x, y, [4], x[:, :1].clone(), y[:, :1].clone(), x[0].clone(), None, [True, False, False]
    ),
    "nothing": lambda x, y: torch._foreach_mul_([x, y], 2.0),
    "out": lambda x, y: torch.mul(x, y, out=y),
    "attention": lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None]),
}


def looks(of: Tensor, given: list[Tensor]) -> tuple[Any, ...]:
    owner = [of.untyped_storage()._cdata == tensor.untyped_storage()._cdata for tensor in given]
    return of.shape, of.stride(), of.storage_offset(), of.dtype, of.untyped_storage().nbytes(), owner


def found(operation: Callable[[Tensor, Tensor], Any]) -> list[Any]:
    given = [torch.ones(4, 4), torch.ones(4, 4)]
    out = operation(*given)
    parts = [out] if isinstance(out, Tensor) else list(out or ())
    return [None if part is None else looks(part, given) for part in parts]


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_operation_gives_the_like_of_what_real_tensors_give(operation):
    real = found(operation)
    for _ in range(2):  # played, and then answered
        with Watch():
            assert found(operation) == real


@pytest.mark.parametrize("case", ["experts", "recomputed", "bf16-mixed in micro-batches", "muon"])
def test_a_step_is_as_it_was_played(case, monkeypatch):
    spec = spec_of(*CASES[case])
    expected = forecast(spec)
    assert forecast(spec) == expected  # all of it known by now
    with monkeypatch.context() as patch:
        patch.setattr(replay.Replay, "dispatch", FakeTensorMode.dispatch)
        assert forecast(spec) == expected


def test_a_wrong_answer_is_seen(monkeypatch):
    """The negative control: nothing else than what is remembered answers."""
    spec = spec_of(*CASES["gqa"])
    expected = forecast(spec)
    wrong = {key: (lambda mode, args: torch.empty(3)) for key in replay._known if "mm" in str(key[0])}
    monkeypatch.setattr(replay, "_known", replay._known | wrong)
    with pytest.raises(AssertionError):
        assert forecast(spec) == expected


def test_no_more_is_remembered_than_there_is_room(monkeypatch):
    monkeypatch.setattr(replay, "_known", {})
    monkeypatch.setattr(replay, "REMEMBERED", 3)
    with Watch():
        for size in range(1, 6):
            assert (torch.empty(size) + 1).shape == (size,)
    assert len(replay._known) <= 3

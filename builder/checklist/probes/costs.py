"""Whether the FLOPs and bytes that components state are those of a run: products are counted, and states weighed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from builder.components.attention import Attention
from builder.components.kernel import kernels
from builder.finding import Finding, Status

from . import Specimen


@torch.no_grad()
def prove(specimen: Specimen) -> Iterator[Finding]:
    """The FLOPs stated for a sequence against those counted, and the bytes of each state against its tensors."""
    yield _flops(specimen)
    if specimen.model.spec.causal:
        yield from _state(specimen)


def _flops(specimen: Specimen) -> Finding:
    model = copy.deepcopy(specimen.model)
    for attention in (module for module in model.modules() if isinstance(module, Attention)):
        attention.kernels = kernels("eager")  # the reference multiplies what the formula says and nothing beside it
    with Counter() as counter:
        model(specimen.tokens, **specimen.beside())
    stated = model.flops(specimen.tokens.shape[1])
    if stated != counter.total:
        found = f"{stated:,} FLOPs stated, {counter.total:,} counted on a small copy"
        rule = "each part states the FLOPs of what it multiplies, so that runs are compared at their true cost"
        return Finding(
            Status.FAIL, 1, "model", found, rule, "a component whose `flops` are those of what it multiplies"
        )
    found = f"FLOPs of a small copy: {counter.total:,}, as stated"
    return Finding(Status.PASS, 1, "model", found, "proven: every matrix product of a run was counted")


def _state(specimen: Specimen) -> Iterator[Finding]:
    """What the state of a whole sequence holds, layer by layer, against what its `bytes` say."""
    model = specimen.model
    state = model.new_state(1, specimen.tokens.shape[1])
    model(specimen.tokens, state=state, **specimen.beside())
    wrong = False
    for kind, alike in model.spec.kinds.items():
        layer = state.layers[alike[0].index]
        stated, held = layer.bytes(), sum(tensor.nbytes for tensor in _tensors(layer, set()))
        if stated != held:
            wrong = True
            found = f"each {kind} layer: {stated:,} bytes of state stated, {held:,} held by a small copy"
            rule = "a state says how much memory it takes, so that a deployment can be planned"
            fix = "a component whose state counts all that it keeps"
            yield Finding(Status.FAIL, 1, f"model.{alike[0].mixer.slot}", found, rule, fix)
    if not wrong:
        found = f"state of a small copy: {state.bytes():,} bytes, as stated"
        yield Finding(Status.PASS, 1, "model", found, "proven: every tensor that a layer keeps was weighed")


def _tensors(held: Any, met: set[int]) -> Iterator[Tensor]:
    """The tensors that an object holds, each once."""
    if id(held) in met:
        return
    met.add(id(held))
    if isinstance(held, Tensor):
        yield held
        return
    inner = held.values() if isinstance(held, Mapping) else held if isinstance(held, list | tuple) else None
    for part in vars(held).values() if inner is None and hasattr(held, "__dict__") else inner or ():
        yield from _tensors(part, met)


class Counter(TorchDispatchMode):
    """Counts two FLOPs for each multiply-add of the products that run on the CPU while it is entered.

    It stands where all ways of writing a product have become one of a few, but for an `einsum` that sums over a single
    number: of that, torch makes an element-wise product. torch's own FLOP counter stands there too, but importing it
    costs more than the whole check.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self._sums = _Sums(self)

    def __enter__(self) -> Any:
        self._sums.__enter__()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._sums.__exit__(*raised)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and being skipped by the compiler means to import it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in _COSTS:
            self.total += _COSTS[func.overloadpacket](out, *args)
        return out


class _Sums(TorchFunctionMode):
    """Adds to a count each `einsum` of two tensors that sums over what they share and came to no product."""

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self._counter.total
        out = func(*args, **(kwargs or {}))
        if func is torch.functional.einsum and self._counter.total == before and _sums(args[0]):
            self._counter.total += 2 * out.numel()
        return out


def _sums(equation: Any) -> bool:
    """Whether two tensors share an axis in it that the result doesn't have."""
    told, _, kept = str(equation).partition("->")
    terms = [set(term) - set(" .") for term in told.split(",")]
    return len(terms) == 2 and not (terms[0] & terms[1]) <= set(kept)


def _product(out: Tensor, a: Tensor, b: Tensor, *_: Any) -> int:
    return 2 * out.numel() * a.shape[-1]


def _added_product(out: Tensor, c: Tensor, a: Tensor, b: Tensor, *_: Any) -> int:
    return _product(out, a, b)


def _attention(out: Any, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    scores = q.shape[:-1].numel() * k.shape[-2]  # (B, H, T, S)
    return 2 * scores * (q.shape[-1] + v.shape[-1])


def _convolution(
    out: Tensor, x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, back: bool, *_: Any
) -> int:
    return 2 * (x if back else out).numel() * weight[0].numel()


_ATEN = torch.ops.aten
_COSTS: dict[Any, Callable[..., int]] = {
    **dict.fromkeys((_ATEN.mm, _ATEN.bmm, _ATEN.mv, _ATEN.dot), _product),
    **dict.fromkeys((_ATEN.addmm, _ATEN.baddbmm, _ATEN.addmv), _added_product),
    _ATEN._scaled_dot_product_flash_attention_for_cpu: _attention,
    _ATEN.convolution: _convolution,
}

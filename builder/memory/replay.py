"""What operations on fake tensors gave before: asked for the like again, they are answered, and not played."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

REMEMBERED = 100_000
"""Answers that a process remembers."""

Answer = Callable[[FakeTensorMode, Any], Any]
"""Makes a result again, from the arguments."""

_UNSURE = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
"""Marks of operations whose results follow from more than what their arguments look like."""

_PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
"""Arguments that look like what they are."""

_known: dict[tuple[Any, ...], Answer | None] = {}
"""What was asked, and how it is answered; None: by torch, each time."""


class Replay(FakeTensorMode):
    """Torch's fake tensors, in a fraction of the time.

    A view is made of its tensor at once. Any other operation of torch's own gives, of arguments that look the same,
    what it gave: a tensor in memory of its own, one of the arguments, several of these, or nothing. Torch itself plays
    whatever else there is.
    """

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What an operation gives."""
        kwargs, (certain, views) = kwargs or {}, _nature(func)
        key = _asked(self, func, args, kwargs) if certain else None
        if key is None:
            return super().dispatch(func, types, args, kwargs)
        if views:
            return self._viewed(func, args, kwargs)
        if (answer := _known.get(key)) is not None:
            return answer(self, args)
        out = super().dispatch(func, types, args, kwargs)
        if key not in _known:
            if len(_known) >= REMEMBERED:
                _known.clear()
            _known[key] = _answer(out, args, set(_storages([args, kwargs.values()])))
        return out

    def _viewed(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The view, or views, that `func` makes of its first argument."""
        with in_kernel_invocation_manager(self):
            out = func(*args, **kwargs)
        device = args[0].fake_device
        if isinstance(out, Tensor):
            return FakeTensor(self, out, device)
        return type(out)(FakeTensor(self, part, device) for part in out)


@cache
def _nature(func: Any) -> tuple[bool, bool]:
    """Whether what an operation gives follows from what its arguments look like, and whether it is a view of them."""
    if getattr(func, "namespace", "") != "aten" or not _UNSURE.isdisjoint(func.tags):
        return False, False
    views = func.is_view or func is torch.ops.aten._unsafe_view.default
    composed = func.has_kernel_for_dispatch_key(torch.DispatchKey.CompositeImplicitAutograd)  # of others, by torch
    return not (views and composed), views


def _asked(mode: FakeTensorMode, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """All that a result follows from, but for where in its memory an argument begins; None where that can't be told."""
    key = [func, torch.get_default_dtype(), *kwargs]
    return tuple(key) if _looks(mode, args, key) and _looks(mode, kwargs.values(), key) else None


def _looks(mode: FakeTensorMode, args: Any, key: list[Any]) -> bool:
    """Adds to a key what arguments look like; False where one may not be what it looks like."""
    key.append(len(args))
    for arg in args:
        if type(arg) is FakeTensor:
            if arg.fake_mode is not mode or arg.constant is not None or arg.is_sparse:
                return False
            key += arg.shape, arg.stride(), arg.dtype, arg.fake_device, arg.is_conj(), arg.is_neg()
        elif type(arg) in _PLAIN:
            key += type(arg), arg  # 1, 1.0 and True are the same key
        elif type(arg) not in (list, tuple) or not _looks(mode, arg, key):
            return False
    return True


def _answer(out: Any, args: Any, held: set[int]) -> Answer | None:
    """How this result of these arguments, in storages `held`, is made again; None where that isn't sure."""
    if type(out) in (list, tuple):
        kind, parts = type(out), [_answer(part, args, held) for part in out]
        own = [_storage(part) for part in out if isinstance(part, Tensor) and _storage(part) not in held]
        sure = [part for part in parts if part is not None]
        if len(sure) < len(parts) or len(set(own)) < len(own):
            return None
        return lambda mode, args: kind(part(mode, args) for part in sure)
    if out is None:
        return lambda mode, args: None
    place = next((place for place, arg in enumerate(args) if arg is out), None)
    if place is not None:
        return lambda mode, args: args[place]
    if type(out) is not FakeTensor or out.constant is not None or out.is_sparse or out.is_conj() or out.is_neg():
        return None
    shape, stride, dtype, device = out.shape, out.stride(), out.dtype, out.fake_device
    whole = torch.empty_strided(shape, stride, dtype=dtype, device="meta").untyped_storage().nbytes()
    if _storage(out) in held or out.storage_offset() or out.untyped_storage().nbytes() != whole:
        return None
    return lambda mode, args: FakeTensor(mode, torch.empty_strided(shape, stride, dtype=dtype, device="meta"), device)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _storages(args: Iterable[Any]) -> Iterator[int]:
    for arg in args:
        if isinstance(arg, Tensor):
            yield _storage(arg)
        elif isinstance(arg, Iterable) and not isinstance(arg, str):
            yield from _storages(arg)

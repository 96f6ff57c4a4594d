"""One more token in each row through the model: as its code is written, or compiled whole by torch and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..errors import ArchlabError

Step = Callable[[Tensor, Any], Tensor]
"""Logits (B, V) behind ids (B,), which are appended to the state."""
Backend = str | Callable[..., Any]

_GRAPHS = 16
"""How many graphs a model may need: for one row and several, padded and not, in a ring before and after it turns."""
_kept: WeakKeyDictionary[Any, Callable[[Any, Tensor, Any], Tensor]] = WeakKeyDictionary()
_numbers = count()


def step_of(model: Any, compile: bool, backend: Backend = "inductor") -> Step:
    """The step of decode of a model; compiled, it is that of the model's former calls, whatever their `backend`.

    Lengths and positions are symbols of what is compiled, so that a row that grows compiles nothing anew. It reads the
    weights that the model has when it is called. Nothing is set on the model, and its step goes when it goes.
    The step raises `ArchlabError` where torch can't compile the model whole: it never runs in part as it is written.
    """
    if not compile:
        return partial(_step, model)
    if model not in _kept:
        _kept[model] = _compiled(backend)
    return partial(_kept[model], model)


def _step(model: Any, ids: Tensor, state: Any) -> Tensor:
    return model(ids[:, None], attention_mask=None, state=state, last_only=True).logits[:, -1]  # (B, V)


def _compiled(backend: Backend) -> Callable[[Any, Tensor, Any], Tensor]:
    """`_step`, compiled, with graphs of its own: torch counts those of each code object, and this one is new."""
    code = _step.__code__.replace(co_name=f"step_{next(_numbers)}")
    region = torch.compile(FunctionType(code, _step.__globals__), backend=backend, dynamic=True, fullgraph=True)

    def step(model: Any, ids: Tensor, state: Any) -> Tensor:
        from torch._dynamo import config, exc  # the compiler, which few passes need

        try:
            with config.patch(recompile_limit=_GRAPHS):
                return region(model, ids, state)
        except (exc.TorchDynamoException, exc.FailOnRecompileLimitHit) as error:
            rule = "torch can't compile the decode step of this model as a whole"
            raise ArchlabError(
                f"compile: found true, and {rule} ({type(error).__name__}: {error}); allowed are models whose every "
                "part torch.compile can trace, where it finds a compiler; write compile=false"
            ) from error

    return step

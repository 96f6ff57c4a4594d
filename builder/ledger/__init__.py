"""What an architecture costs: shapes, parameters, FLOPs and state bytes, read off the built model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from builder.errors import expect
from builder.model.assemble import build
from builder.model.context import Shape
from builder.model.language_model import LanguageModel
from builder.model.state import State
from builder.spec import ModelSpec

from .parameters import active, by_component, dispatched
from .sample import LAST, SECOND, Sample, Times, every
from .shapes import shapes

EXPERT_RANKS = (2, 4, 8)
"""Over how many ranks the reports spread experts, where they say what is sent."""


@dataclass(frozen=True)
class Ledger:
    """The costs of one architecture.

    params                  parameters, a tied table once
    active_params           those that one token passes through
    components              parameters by part of the model
    flops_per_token         of a forward pass at train_length, two for each multiply-add, with a source as long where
                            one is read; causal attention counts in full; a training step costs three times as much
    state_bytes_per_token   what generation keeps for one more token at deploy_length, in float32: a layer whose window
                            is full keeps nothing more
    dispatched_per_token    numbers of one token that go to experts in a forward pass, over all layers
    state_bytes             what it keeps for one sequence of deploy_length tokens, in float32
    constant_state_bytes    of those, by slot, what one layer keeps that keeps nothing more for one more token: a
                            recurrent layer from the first token on, one whose window is full, or what it made of a
                            source of train_length tokens
    shapes                  the shape ledger of chapter 3.7, for each distinct layer
    """

    params: int
    active_params: int
    components: Mapping[str, int]
    flops_per_token: int
    state_bytes_per_token: int
    state_bytes: int
    constant_state_bytes: Mapping[str, int]
    dispatched_per_token: int
    shapes: tuple[Shape, ...]

    def communication(self, ranks: int) -> int:
        """Bytes that one token sends and gets back in a forward pass whose experts are spread over `ranks`, in float32.

        2 (R - 1) / R sum_layers k d numbers: of the k copies of a token each stays on its own rank with probability
        1 / R (Lepikhin et al. 2021). A backward pass sends as much again; in bfloat16 it is half. Raises ValueError for
        less than one rank.
        """
        if ranks < 1:
            raise ValueError(f"ranks: found {ranks}; experts lie on at least 1")
        return 2 * 4 * self.dispatched_per_token * (ranks - 1) // ranks

    def to_dict(self) -> dict[str, Any]:
        """The ledger in plain Python."""
        return asdict(self)

    def summary(self) -> dict[str, int]:
        """The figures that runs are compared by, under their metric names; what is sent, where there are experts."""
        keys = ["params", "active_params", "flops_per_token", "state_bytes_per_token"]
        keys += ["dispatched_per_token"] if self.dispatched_per_token else []
        return {f"ledger/{key}": getattr(self, key) for key in keys}

    def __str__(self) -> str:
        rows = [(name, f"{count:,}") for name, count in self.components.items()]
        rows += [("parameters", f"{self.params:,}"), ("active per token", f"{self.active_params:,}")]
        rows += [("forward FLOPs per token", f"{self.flops_per_token:,}")]
        rows += [("state bytes per token", f"{self.state_bytes_per_token:,}")]
        rows += [(f"constant, a layer of {slot}", f"{size:,}") for slot, size in self.constant_state_bytes.items()]
        for ranks in EXPERT_RANKS if self.dispatched_per_token else ():
            rows.append((f"bytes sent, {ranks} ranks", f"{self.communication(ranks):,}"))
        costs = "\n".join(f"{name:<26}{value:>20}" for name, value in rows)
        wide = max((len(line.where) for line in self.shapes), default=0) + 2
        lines = (f"{line.where:<{wide}}{line.tensor:<20}{line.axes:<10}{list(line.sizes)}" for line in self.shapes)
        table = "\n".join(lines)
        return f"{costs}\n\n{table}"


def ledger(model_spec: ModelSpec, batch_size: int = 1) -> Ledger:
    """The ledger of an architecture, its shapes for `batch_size` sequences of train_length; nothing is allocated.

    Of each kind of layer three are built, where there are more: the second and the last of them cost the same, or
    all are.
    """
    expect(model_spec, ModelSpec, "ledger", "ledger(spec.model)")
    few = Sample.of(model_spec)
    model = build(few, device="meta")
    figures = _figures(model, few.times(LAST))
    if figures != _figures(model, few.times(SECOND)):
        figures = _figures(build(model_spec, device="meta"), every(model_spec))
    return Ledger(**figures, shapes=shapes(model_spec, batch_size))


def _figures(model: LanguageModel, times: Times) -> dict[str, Any]:
    """What a model costs whose layers stand for so many each."""
    spec, components = model.spec, by_component(model, times)
    length, longest = spec.train_length, spec.deploy_length
    layers: list[tuple[int, Any]] = [
        (of, block) for name, tower in model.towers.items() for of, block in zip(times[name], tower.layers, strict=True)
    ]
    flops = sum(of * block.flops(length) for of, block in layers) + model.head.flops(length)
    last, before = model.new_state(1, longest), model.new_state(1, longest - 1)
    held, earlier = _bytes(last, times[""]), _bytes(before, times[""])
    return {
        "params": sum(components.values()),
        "active_params": active(model, times),
        "components": components,
        "flops_per_token": flops // length,
        "state_bytes_per_token": held - earlier,
        "state_bytes": held,
        "constant_state_bytes": _constant(spec, last, before),
        "dispatched_per_token": dispatched(model, times),
    }


def _bytes(state: State, times: Sequence[int]) -> int:
    """The bytes of a state whose layers stand for so many each."""
    made = {} if state.source is None else state.source.layers
    return sum(of * layer.bytes() for of, layer in zip(times, state.layers, strict=True)) + sum(
        times[index] * layer.bytes() for index, layer in made.items()
    )


def _constant(spec: ModelSpec, last: State, before: State) -> dict[str, int]:
    """The bytes of one layer of each mixer slot whose state is as large one token earlier."""
    layers = zip(spec.layers, last.layers, before.layers, strict=True)
    found = {layer.mixer.slot: at.bytes() for layer, at, earlier in layers if at.bytes() == earlier.bytes()}
    kept = {} if last.source is None else last.source.layers
    return found | {part.slot: kept[layer.index].bytes() for layer in spec.layers if (part := layer.part("cross"))}

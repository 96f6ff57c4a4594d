"""Whether each part by itself looks no further than it may, in training as well: so that a leak has a name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from builder.checklist.where import path_of
from builder.components.attention import Mixer
from builder.components.ffn import FFN
from builder.finding import Finding, Status
from builder.model.language_model import LanguageModel
from builder.model.mask import Mask
from builder.model.tower import Tower

from . import LENGTH, Specimen
from .causality import PLAIN, at, changed_at, vectors

_FAR = "a mixer looks as far as its mask lets it, in training as well"


@dataclass(frozen=True)
class Alone:
    """A part by its module's name, what it makes of vectors (1, T, D), and what may be seen there, (T, T) bool."""

    name: str
    run: Callable[[Tensor], Tensor]
    seen: Tensor
    rule: str = "it looks at each position alone"


@torch.no_grad()
def prove(specimen: Specimen) -> Iterator[Finding]:
    """Each mixer, each ffn that transforms positions alone, each norm and the head, in training and outside of it."""
    found: dict[str, tuple[str, str]] = {}
    count = 0
    for training in (False, True):
        model = copy.deepcopy(specimen.model).train(training)
        names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
        for part in _parts(specimen, model, names):
            count += 1
            path = path_of(model.spec, part.name)
            if path not in found and (pair := _leak(specimen, part, training)) is not None:
                what = f"what {part.name} says at {pair[0]} moves with token {pair[1]}"
                found[path] = what + ", in training alone" * training, part.rule
    for path, (what, rule) in found.items():
        yield Finding(Status.FAIL, 2, path, what, rule, "another component here")
    if not found:
        what = f"{count // 2} parts by themselves, in training and outside of it"
        rule = "proven: a mixer looks as far as its mask lets it, and everything else at each position alone"
        yield Finding(Status.PASS, 2, "model", what, rule)


def _parts(specimen: Specimen, model: LanguageModel, names: dict[nn.Module, str]) -> Iterator[Alone]:
    """Every part that can be asked by itself, those of equal layers once."""
    eye = torch.eye(LENGTH, dtype=torch.bool)
    for tower in model.towers.values():
        for alike in tower.spec.kinds.values():
            index = alike[0].index
            for child, module in tower.layers[index].named_children():
                if isinstance(module, Mixer) and child == "mixer":
                    yield Alone(names[module], _told(specimen, tower, index, module), _seen(tower, module), _FAR)
                elif isinstance(module, FFN) and module.alone:
                    yield Alone(names[module], _told(specimen, tower, index, module), eye)
                elif child.endswith("norm"):
                    yield Alone(names[module], module, eye)
        if tower.final_norm is not None:
            yield Alone(names[tower.final_norm], tower.final_norm, eye)
    if model.head.gives in ("tokens", "token_classes"):
        yield Alone("head", model.head, eye)


def _told(specimen: Specimen, tower: Tower, index: int, module: Mixer | FFN) -> Callable[[Tensor], Tensor]:
    """A part of layer `index`, told what its layer is told."""
    read = vectors(specimen, tower, seed=2)[:1]
    return lambda x: module(x, at(tower, index, Mask(causal=tower.spec.causal), PLAIN.positions, read))


def _seen(tower: Tower, module: Mixer) -> Tensor:
    return module.sees(Mask(causal=tower.spec.causal)).dense(LENGTH, LENGTH, torch.device("cpu"))[0, 0]


def _leak(specimen: Specimen, part: Alone, training: bool) -> tuple[int, int] | None:
    """The first (i, j) where what is said at i moves with j and may not. In training each row is a pass of its own, of
    the same seed, so that whatever is drawn is drawn alike."""
    made = []
    for some in vectors(specimen, specimen.model).split(1 if training else LENGTH + 1):
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            made.append(part.run(some))
    change = changed_at(torch.cat(made))
    leaks = (~part.seen & (change > specimen.tolerance)).nonzero().tolist()
    return (leaks[0][0], leaks[0][1]) if leaks else None

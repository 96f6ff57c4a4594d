"""The table of tensors: which of theirs is which of ours, for every layer, weight and bias."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from .form import Form, Rows

_ROWS = Rows()
_ENDS = ("", ".weight", ".bias")


@dataclass(frozen=True)
class Rule:
    """The module or parameter `theirs` holds the modules or parameters `ours`, in the given form.

    `{n}` in both stands for the number of a layer. What is below a module follows from our model: where our module has
    a bias, theirs has one; a layer of ours without the module has none. So one table serves every variant of a family.

    `{e}` in theirs stands for the number of an expert: ours is all of them, stacked (X, ...), and theirs is one.
    """

    theirs: str
    ours: str | tuple[str, ...]
    form: Form = _ROWS


@dataclass(frozen=True)
class Match:
    """One tensor of theirs and the tensors of ours in it, by full name; of stacked ones what is one `expert`'s."""

    theirs: str
    ours: tuple[str, ...]
    form: Form
    expert: int | None = None

    def join(self, state: Mapping[str, Tensor]) -> Tensor:
        """Theirs, made of our state dict."""
        return self.form.to_theirs(self._parts(state))

    def split(self, theirs: Tensor, state: Mapping[str, Tensor]) -> None:
        """Writes theirs into the tensors of our state dict."""
        parts = self._parts(state)
        for part, value in zip(parts, self.form.to_ours(theirs, [part.shape for part in parts]), strict=True):
            part.copy_(value)

    def _parts(self, state: Mapping[str, Tensor]) -> list[Tensor]:
        return [state[name] if self.expert is None else state[name][self.expert] for name in self.ours]


def matches(rules: Iterable[Rule], state: Mapping[str, Tensor], n_layers: int, family: str) -> list[Match]:
    """The rules written out for a model with this state dict, of which only names and shapes are read.

    Raises ValueError when the table leaves a tensor out or claims one twice: a fault of the family's file.
    """
    found = [match for rule in rules for match in _expanded(rule, state, n_layers)]
    claims = Counter((name, match.expert) for match in found for name in match.ours)
    left = sorted(set(state) - {name for name, _ in claims})
    twice = sorted({name for (name, _), count in claims.items() if count > 1})
    if left or twice:
        raise ValueError(f"family {family}: no rule for {left or 'nothing'}, two for {twice or 'nothing'}")
    return found


def _expanded(rule: Rule, state: Mapping[str, Tensor], n_layers: int) -> Iterator[Match]:
    ours = (rule.ours,) if isinstance(rule.ours, str) else rule.ours
    for layer in range(n_layers) if "{n}" in rule.theirs else (0,):
        for end in _ENDS:
            theirs = f"{rule.theirs}{end}".replace("{n}", str(layer))
            wanted = tuple(f"{name}{end}".replace("{n}", str(layer)) for name in ours)
            if not all(name in state for name in wanted):
                continue
            if "{e}" not in theirs:
                yield Match(theirs, wanted, rule.form)
            else:
                for expert in range(len(state[wanted[0]])):
                    yield Match(theirs.replace("{e}", str(expert)), wanted, rule.form, expert)

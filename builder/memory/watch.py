"""Whatever runs under it is played through, and not computed: no tensor has storage, and every storage is counted."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from builder.errors import ArchlabError

from .bytes import Bytes
from .replay import Replay
from .workspaces import kept, taken

MOST = 15_000
"""Operations that are played: a second of them. A scan over a long text, without its kernel, has millions."""

_DEVICE = torch.ops.prim.device.default
"""The question where a tensor is: no operation, and asked where torch can pass no error on."""


class Endless(ArchlabError):
    """What is watched has more operations than are played through: `longest` of them in one stretch."""

    def __init__(self, longest: int):
        self.longest = longest
        super().__init__(
            f"batch.micro_batch: a step has more than {MOST:,} operations, as a scan over a long text has where "
            "its kernel isn't installed: what it holds isn't forecast; write batch.micro_batch=<a number>"
        )


@dataclass(frozen=True)
class Stretch:
    """A part of what was watched, by what was held at its start, when most was held in it, and at its end; and how many
    operations were played in it."""

    name: str
    start: Bytes
    peak: Bytes
    end: Bytes
    operations: int = 0

    @property
    def change(self) -> Bytes:
        """How much more is held at its end than at its start."""
        return self.end - self.start

    @property
    def rise(self) -> Bytes:
        """How much more than at its start is held when most is."""
        return self.peak - self.start


class Watch(Replay):
    """Torch's fake tensors, which choose their kernels by the device they pretend to be on, with a count of bytes.

    What is made counts as `label` until it is moved; a storage is counted from the operation that returns it to its
    last owner's end, at the size that was asked for. What a kernel takes for itself while it runs isn't seen, but for
    those that `workspaces` knows.
    """

    def __init__(self, most: int | None = None) -> None:
        """`most`: how many operations it may see; None: `MOST`."""
        super().__init__()
        self.label = "activations"
        self._most_played = MOST if most is None else most
        self._inside = False
        self._held: dict[int, tuple[str, int]] = {}
        self._ends: dict[int, weakref.ref] = {}
        self._now = dict.fromkeys(Bytes.__dataclass_fields__, 0)
        self._total = 0
        self._most = 0
        self._stretches: list[Stretch] = []
        self._played = self._longest = 0
        self._begin("start")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE:
            return args[0].fake_device
        if self._inside:  # what torch makes to learn the shapes of a result is made by no kernel
            return super().__torch_dispatch__(func, types, args, kwargs)
        self._played += 1
        if self._played > self._most_played:
            raise Endless(max(self._longest, self._played - self._before))
        self._inside = True
        try:
            out = kept(func, args, self.dispatch(func, types, args, kwargs))
        finally:
            self._inside = False
        if isinstance(out, Tensor):
            self._count(out)
        elif isinstance(out, tuple | list):
            for part in out:
                if isinstance(part, Tensor):
                    self._count(part)
        self._pass(taken(func, args))
        return out

    @property
    def held(self) -> Bytes:
        """What is held now."""
        return Bytes(**self._now)

    def move(self, tensors: Iterable[Tensor], label: str) -> None:
        """Counts what these tensors lie in as `label` from now on."""
        for tensor in tensors:
            key = tensor.untyped_storage()._cdata
            if key in self._held:
                before, size = self._held[key]
                self._held[key] = (label, size)
                self._now[before] -= size
                self._now[label] += size

    @contextmanager
    def labelled(self, label: str) -> Iterator[None]:
        """What is made inside counts as `label`."""
        before, self.label = self.label, label
        try:
            yield
        finally:
            self.label = before

    def cut(self, name: str) -> None:
        """Ends the stretch that runs, and begins one of that name."""
        self._end()
        self._begin(name)

    def stretches(self) -> list[Stretch]:
        """All of them since the last call, the one that runs ended too."""
        self._end()
        done, self._stretches = self._stretches, []
        self._begin("start")
        return done

    def _begin(self, name: str) -> None:
        self._name, self._start, self._before = name, self.held, self._played
        self._peak, self._most = self._start, self._total

    def _end(self) -> None:
        played = self._played - self._before
        self._longest = max(self._longest, played)
        self._stretches.append(Stretch(self._name, self._start, self._peak, self.held, played))

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._held or not (size := storage.nbytes()):
            return
        self._held[key] = (self.label, size)
        self._ends[key] = weakref.ref(storage, lambda _: self._release(key))
        self._now[self.label] += size
        self._total += size
        self._pass(0)

    def _pass(self, beside: int) -> None:
        """Holds so many bytes more for a moment."""
        if self._total + beside > self._most:
            self._most, self._peak = self._total + beside, self.held + Bytes(activations=beside)

    def _release(self, key: int) -> None:
        label, size = self._held.pop(key)
        del self._ends[key]
        self._now[label] -= size
        self._total -= size

"""A pass leaves nothing behind: what it made is freed with it, without waiting for the garbage collector."""

import gc
import weakref

import pytest
import torch

from builder.model.mask import Mask
from builder.model.positions import Positions


@pytest.fixture
def without_collector():
    """What is freed here is freed by its last reference."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def made(monkeypatch):
    """Weak references to every Positions and Mask that is made."""
    alive: list[weakref.ref] = []
    for cls in (Positions, Mask):
        whole = cls.__init__

        def watched(self, *args, whole=whole, **kwargs):
            whole(self, *args, **kwargs)
            alive.append(weakref.ref(self))

        monkeypatch.setattr(cls, "__init__", watched)
    return alive


@pytest.mark.turns(2)
@torch.no_grad()
def test_a_pass_frees_what_it_made(tiny, ids, pinned, scheme, kernel, without_collector, made):
    model = tiny(position=scheme, attention=pinned(kernel, window=5))
    model(ids(2, 8), attention_mask=torch.ones(2, 8, dtype=torch.bool))
    assert made and not [ref() for ref in made if ref() is not None]


def test_what_holds_itself_is_seen(without_collector, made):
    def leaves_a_cycle():
        positions = Positions(torch.arange(3)[None])
        positions.once("itself", lambda: positions)

    leaves_a_cycle()
    assert [ref for ref in made if ref() is not None]

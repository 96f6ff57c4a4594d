"""Whatever changes at a length does so within what a probe reads: in the small copy a window ends, a chunk, a table."""

import re
from typing import get_args

import pytest

from builder import registry
from builder.checklist.probes import LENGTH
from builder.components.ssm._chunks import CHUNK, chunks
from builder.model.scan import chunk_length
from builder.model.selective_scan import scanned
from tests import choices

LENGTHS = {"window", "chunk", "d_conv", "max_distance", "original_length"}
"""Knobs that are numbers of tokens."""
OTHERS = r"n_\w+|d_\w+|\w*rank|offset|weights|length|top_\w+"
"""Knobs that are counts and widths, and a table's `length`, past whose end nothing is read."""
SLOTS = {"attention": "attention", "ssm": "attention", "recurrent": "attention", "ffn": "ffn"}
"""Where a component of a room stands in a model; one of another room holds no others, and stands alone."""
ROOMS = (*SLOTS, "router", "position", "scaling")


def there(run, room):
    """(name, config) of every component of a room that a model may hold."""
    if room not in SLOTS:
        yield from ((name, registry.find(room, name).Config.model_construct()) for name in registry.names(room))
        return
    for name in choices.mixers(room) if SLOTS[room] == "attention" else registry.names(room):
        yield name, run({f"model.{SLOTS[room]}": choices.slot(room, name)}).model.slots[SLOTS[room]]


def numbers(config):
    """The knobs of a config that are whole numbers."""
    for key, field in type(config).model_fields.items():
        kinds = {field.annotation, *(kind for part in get_args(field.annotation) for kind in (part, *get_args(part)))}
        if int in kinds and float not in kinds:
            yield key


@pytest.mark.parametrize("room", ROOMS)
def test_every_length_is_felt(run, room):
    """Of every component, from a config in which it is far longer; and every whole number is one or none."""
    site = run().model.site(0)
    for name, config in there(run, room):
        knobs = set(numbers(config))
        assert all(re.fullmatch(OTHERS, key) for key in knobs - LENGTHS), f"{room}/{name}: a length, or none?"
        long = config.model_copy(update=dict.fromkeys(knobs & LENGTHS, 1000))
        small = long.shrink(site)
        for key in knobs & LENGTHS:
            assert getattr(small, key) < LENGTH, f"{room}/{name}.{key}"


def test_every_sequence_that_a_probe_reads_is_cut():
    assert chunks(LENGTH) == (2, LENGTH // 2) and chunks(1) == (1, 1) and chunks(10 * CHUNK) == (10, CHUNK)
    assert chunk_length(LENGTH) < LENGTH and scanned(LENGTH) > LENGTH  # and the last chunk is filled up

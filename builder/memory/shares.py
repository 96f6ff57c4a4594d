"""What one of several ranks holds: the arithmetic of data parallelism, of sharding and of tensor parallelism."""

from __future__ import annotations

from builder.division import Division

from .bytes import Bytes


def share(division: Division, held: Bytes) -> Bytes:
    """What a rank holds of weights, gradients and optimizer, where all of them hold `held`; the rest is its own, and
    counts as if no map were divided."""
    parts = division.shards * division.tensor
    return Bytes(
        weights=-(-held.weights // parts),
        gradients=-(-held.gradients // parts),
        optimizer=-(-held.optimizer // parts),
        activations=held.activations,
        logits=held.logits,
    )


def gathered(division: Division, layer: int, ends: int) -> Bytes:
    """What a rank holds beside its share while it computes, for a largest `layer` and for `ends` of so many bytes.

    Sharded, the weights of a layer are whole where they are needed, and those of the next one meanwhile; those of the
    ends stay whole. A gradient is whole until it is scattered.
    """
    if division.shards == 1:
        return Bytes()
    return Bytes(weights=(2 * layer + ends) // division.tensor, gradients=(layer + ends) // division.tensor)

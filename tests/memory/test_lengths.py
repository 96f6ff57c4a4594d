"""A long text that is gone through token by token is forecast from short ones; where these don't tell it, it isn't."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.memory import Bytes, Endless, Forecaster, forecast, lengths, watch
from tests.memory.test_forecast import spec_of

LENGTH = 203  # no multiple of what the short ones are apart


def spec(pattern: str):
    words = [f"model.train_length={LENGTH}", f"model.deploy_length={LENGTH}", "model/recurrent=rnn"]
    return spec_of(*words, f"model.pattern={pattern}", f"model.n_layers={pattern.count(',') + 1}")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch):
    """So few operations are played that a text of a row of layers is long."""
    monkeypatch.setattr(watch, "MOST", 3600)
    monkeypatch.setattr(lengths, "_LONG", 500)


def test_short_texts_tell_a_long_one(monkeypatch):
    """To the byte: what all its tokens hold, were they played."""
    run = spec("[attention,recurrent]")
    monkeypatch.setattr(watch, "MOST", 3700)  # an attention's own beside the row of steps
    told = Forecaster(run)
    found = told.at(told.chosen)
    assert told._texts._long
    monkeypatch.setattr(watch, "MOST", 15_000)
    played = forecast(run)
    assert (found.peak, found.when) == (played.peak, played.when)


def test_what_they_do_not_tell_is_not_forecast(monkeypatch):
    """Two controls: a stretch that jumps from length to length, and operations that no token more makes more."""
    run = spec("[recurrent]")
    whole = lengths.passes

    def jumps(spec, model, work, most=None):
        extra = Bytes(activations=2**20 * (model.train_length // 8 % 2))
        return [[replace(one, peak=one.peak + extra) for one in each] for each in whole(spec, model, work, most)]

    def chunked(spec, model, work, most=None):
        return [[replace(one, operations=7) for one in each] for each in whole(spec, model, work, most)]

    for broken in (jumps, chunked):
        monkeypatch.setattr(lengths, "passes", broken)
        with pytest.raises(Endless):
            forecast(run)


def test_many_operations_that_are_not_of_one_text_stay_too_many(monkeypatch):
    """They aren't tried again: short texts would have as many."""
    monkeypatch.setattr(watch, "MOST", 200)
    monkeypatch.setattr(lengths.Texts, "_at", lambda *given: pytest.fail("tried"))
    with pytest.raises(Endless):
        forecast(spec("[attention+ffn]"))

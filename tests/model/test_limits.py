"""The end of a learned table is a clear error that names both numbers, before any compute (C25)."""

import pytest
import torch

from builder.model.placement import TooLong


@pytest.fixture
def short(tiny):
    def make(**position):
        return tiny(position={"name": "learned", **position}, train_length=16, deploy_length=16)

    return make


def untouched(model, monkeypatch):
    def refuse(*_):
        raise AssertionError("computed")

    monkeypatch.setattr(model.embedding, "forward", refuse)


def test_the_table_is_used_to_its_last_row(short, ids):
    model = short()
    assert model(ids(2, 16)).logits.isfinite().all()
    state = model.new_state(2, 16)
    for part in ids(2, 16).split((10, 1, 1, 1, 1, 1, 1), dim=1):
        assert model(part, state=state).logits.isfinite().all()


def test_one_token_too_many_names_both_numbers(short, ids, monkeypatch):
    model = short()
    untouched(model, monkeypatch)
    with pytest.raises(TooLong, match=r"model\.position: a sequence of 17 tokens, but the table holds 16"):
        model(ids(1, 17))


def test_the_limit_is_the_same_behind_a_state(short, ids, monkeypatch):
    model = short()
    state = model.new_state(1, 32)
    model(ids(1, 16), state=state)
    untouched(model, monkeypatch)
    with pytest.raises(TooLong, match="17 tokens, but the table holds 16"):
        model(ids(1, 1), state=state)


def test_a_table_of_its_own_length_ends_there(short, ids):
    with pytest.raises(TooLong, match="9 tokens, but the table holds 8"):
        short(length=8)(ids(1, 9))


def test_positions_that_are_given_count_not_the_length(short, ids, monkeypatch):
    model = short()
    folded = torch.arange(20)[None] % 16
    assert model(ids(1, 20), positions=folded).logits.isfinite().all()
    untouched(model, monkeypatch)
    with pytest.raises(TooLong, match="17 tokens, but the table holds 16"):
        model(ids(1, 2), positions=torch.tensor([[0, 16]]))


@pytest.mark.parametrize("name", ["rope", "none", "sinusoidal"])
def test_schemes_without_a_table_have_no_end(tiny, ids, name):
    model = tiny(position=name, train_length=16, deploy_length=16)
    assert model(ids(1, 24)).logits.isfinite().all()

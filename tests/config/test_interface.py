"""`from builder import ...` gives what the design names, whatever was imported before."""

import importlib

import pytest

import builder


@pytest.mark.parametrize("name", builder.__all__)
def test_every_public_name_is_there(name: str):
    assert getattr(builder, name) is not None


@pytest.mark.parametrize("name", ["compose", "load", "ledger"])
def test_a_file_does_not_hide_the_function_it_holds(name: str, monkeypatch: pytest.MonkeyPatch):
    module = importlib.import_module(f"builder.{name}")
    monkeypatch.setattr(builder, name, module)  # what Python does when `builder.<name>` is imported first
    assert getattr(builder, name) is getattr(module, name)


def test_what_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        builder.nope  # noqa: B018

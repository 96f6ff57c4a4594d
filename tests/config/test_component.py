"""A Config is frozen, strictly typed and closed; a slot inside another keeps its full path."""

from typing import Annotated, Any

import pytest
from pydantic import PositiveInt, ValidationError

from builder import registry
from builder.component import Component, Config, Room, refuse, refuse_all


class Parent(Component):
    class Config(Config):
        name: str = "parent"
        count: PositiveInt = 1
        rate: float = 0.5
        flag: bool = False
        inner: Annotated[Config, Room("norm")] | None = None


class Heir(Parent):
    pass


class OtherHeir(Parent):
    class Config(Parent.Config):
        more: int = 0


def test_an_heir_without_a_config_gets_its_own():
    assert Heir.Config is not Parent.Config and issubclass(Heir.Config, Parent.Config)
    assert [cls.Config.component for cls in (Parent, Heir, OtherHeir)] == [Parent, Heir, OtherHeir]


def test_a_config_is_frozen():
    config = Parent.Config()
    with pytest.raises(ValidationError, match="frozen"):
        config.count = 2
    assert config.count == 1


def test_an_unknown_key_is_refused():
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Parent.Config(counts=2)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"count": value} for value in (2.0, 2.5, True, "2", None, 0)),
        *({"rate": value} for value in (True, "0.5", None, float("nan"), float("inf"))),
        *({"flag": value} for value in (1, 0, "true", None)),
        {"name": 3},
    ],
    ids=str,
)
def test_no_type_stands_for_another(wrong: dict[str, Any]):
    with pytest.raises(ValidationError):
        Parent.Config(**wrong)


def test_a_whole_number_is_a_float():
    config = Parent.Config(count=2, rate=1, flag=True)
    assert (config.count, config.rate, config.flag) == (2, 1.0, True)
    assert type(config.rate) is float


def test_a_slot_keeps_the_path_of_what_is_wrong_in_it():
    with pytest.raises(ValidationError) as caught:
        Parent.Config.model_validate({"inner": {"name": "rmsnorm", "eps": -1.0, "epss": 1}})
    assert {line["loc"] for line in caught.value.errors()} == {("inner", "eps"), ("inner", "epss")}


@pytest.mark.parametrize("value", [3, "rmsnorm", [], {}, {"eps": 1.0}, {"name": None}, {"name": "gqa"}], ids=str)
def test_a_slot_is_a_mapping_with_a_name_of_its_room(value: Any):
    with pytest.raises(ValidationError, match=r"names: layernorm, .*rmsnorm"):
        Parent.Config.model_validate({"inner": value})


def test_a_slot_gives_the_config_of_its_component():
    inner = Parent.Config.model_validate({"inner": {"name": "layernorm", "bias": False}}).inner
    assert inner is not None and type(inner) is registry.find("norm", "layernorm").Config


def test_refuse_all_raises_everything_and_nothing_for_nothing():
    refuse_all([])
    with pytest.raises(ValidationError) as caught:
        refuse_all([("a", 1, "rule a", ""), ("b", 2, "rule b", "")])
    assert [(line["loc"], line["input"], line["msg"]) for line in caught.value.errors()] == [
        (("a",), 1, "rule a"),
        (("b",), 2, "rule b"),
    ]
    with pytest.raises(ValidationError, match=r"braces \{stay\} as they are"):
        refuse("a", 1, "braces {stay} as they are")


def test_shrink_leaves_a_config_without_widths_alone():
    config = Parent.Config()
    assert config.shrink(site=None) is config  # type: ignore[arg-type]

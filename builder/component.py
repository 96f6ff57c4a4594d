"""The contract of every component: a nested frozen Config for its own knobs, a Site for the facts it shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, Self

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from . import registry
from .finding import Finding


class Config(BaseModel):
    """The knobs of one component, with their defaults: frozen, strictly typed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    component: ClassVar[Any]
    """The class that this Config belongs to."""
    name: str

    def shrink(self, site: Site) -> Self:
        """The same options on a small model, for the probes: counts and widths go down, nothing is switched off.

        `site` is that of the large model; the small one has d_model 32 and a few tokens (checklist/probes).
        """
        return self

    def grows(self) -> Iterable[str]:
        """The knobs that grow as d_model does, where copies of a model are compared at several widths."""
        return ()


@dataclass(frozen=True)
class Site:
    """Where a component stands: the facts it shares with its model, handed down once at build.

    `causal`: no output may tell of a later token, but for what stands in a `prefix`, where there is one. `norm` and
    `position` are the model's own choices: what a part left out of a slot means. `writes` counts the parts of all
    layers, each of which adds to the residual stream: 2 L in a Transformer. `n_heads` is told to a position scheme
    alone: the query heads of the mixers that use it, None when they differ or have none. `copies` is told to the ffns
    of a mixture alone: through how many of them a token passes. `together` holds the modules that several layers of a
    tower use, under keys of their own.
    """

    d_model: int
    layer: int
    n_layers: int
    writes: int
    causal: bool
    train_length: int
    deploy_length: int
    norm: Config
    position: Config
    prefix: bool = False
    n_heads: int | None = None
    copies: int = 1
    together: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def two_sided(self) -> bool:
        """Whether some queries see what stands behind them: all of an encoder's, and those of a prefix."""
        return self.prefix or not self.causal


_Config = Config  # the name means another thing inside Component


class Component:
    """Anything chosen by name: subclasses carry a nested `Config` and are entered with `@register(room, name)`."""

    Config: ClassVar[type[_Config]] = _Config

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "Config" not in cls.__dict__:  # an heir has a Config of its own, so that each Config names one class
            cls.Config = type("Config", (cls.Config,), {"__module__": cls.__module__})
        cls.Config.component = cls

    @classmethod
    def check(cls, config: Any, site: Site) -> Iterable[Finding]:
        """What the checklist should say of this component at this site; paths are relative to its slot."""
        return ()

    @classmethod
    def inner(cls, config: Any, site: Site) -> Iterable[tuple[str, _Config, Site]]:
        """The components in slots of its own that are asked too, each at its site; position schemes are asked once,
        for all that share them."""
        return [(key, value, site) for key, value in config if isinstance(value, _Config) and key != "position"]


def refuse(key: str, found: object, rule: str, fix: str = "") -> NoReturn:
    """Raises, inside a validator, the problem that `key` holds `found`, against `rule`; `fix` is what to write."""
    raise ValidationError.from_exception_data("config", [_fault(key, found, rule, fix)])


def refuse_all(faults: Iterable[tuple[str, object, str, str]]) -> None:
    """Raises, inside a validator, every (key, found, rule, fix) together; does nothing when there is none."""
    if lines := [_fault(*fault) for fault in faults]:
        raise ValidationError.from_exception_data("config", lines)


def _fault(key: str, found: object, rule: str, fix: str) -> InitErrorDetails:
    error = PydanticCustomError("rule", "{rule}", {"rule": rule, "fix": fix})
    return InitErrorDetails(type=error, loc=tuple(key.split(".")) if key else (), input=found)


SLOT = "slot"
"""The mark of a slot in a JSON Schema: the components that it takes, as room.name."""

UNNAMED = "unnamed"
"""The mark of the one that is meant where a slot gives no name, where there is one."""


class Room:
    """Pydantic annotation of a slot: `Annotated[Config, Room("norm")]` takes `{name: ..., its knobs}` of that room.

    `default` is the name that is meant where none is given; None: it must be.
    """

    def __init__(self, *rooms: str, default: str | None = None):
        self.rooms, self.default = rooms, default

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        dump = core_schema.plain_serializer_function_ser_schema(lambda config: config.model_dump())
        return core_schema.no_info_plain_validator_function(self._validate, serialization=dump)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """A mark where builder/schema.py puts the components, which may hold slots of this room again."""
        keys = [f"{room}.{name}" for room in self.rooms for name in registry.names(room) if self._takes(name)]
        meant = [key for key in keys if self.default is not None and key.partition(".")[2] == self.default]
        return {SLOT: keys} | ({UNNAMED: meant[0]} if meant else {})

    def _takes(self, name: str) -> bool:
        try:
            return bool(self.config_class(name))
        except ValidationError:  # of a room that takes some of its components only
            return False

    def config_class(self, name: str) -> type[Config]:
        """The Config of the component called `name`; raises registry.UnknownName."""
        return registry.find(self.rooms, name).Config

    def _validate(self, value: Any) -> Config:
        if isinstance(value, Config):
            return value
        valid = sorted(name for room in self.rooms for name in registry.names(room))
        rule = f"a slot is {{name: ..., its own knobs}}; names: {', '.join(valid)}"
        if isinstance(value, dict) and self.default is not None:
            value = {"name": self.default} | value
        if not isinstance(value, dict) or "name" not in value:
            raise PydanticCustomError("not_a_slot", "{rule}", {"rule": rule})
        name = value["name"]
        if not isinstance(name, str):
            refuse("name", name, rule)
        try:
            found = self.config_class(name)
        except registry.UnknownName as error:
            fix = error.remedy or (f"name={error.nearest}" if error.nearest else "")
            refuse("name", name, f"{error}; names: {', '.join(error.valid)}" if error.valid else str(error), fix)
        return found.model_validate(value)

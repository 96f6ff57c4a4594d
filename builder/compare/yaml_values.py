"""YAML as OmegaConf reads it, in C: `1e-4` is a number and a date is text, also in a file that a person wrote."""

from __future__ import annotations

import re
from typing import Any

import yaml

_FLOAT = re.compile(  # YAML 1.2's, which plain PyYAML doesn't know without a dot and a sign
    r"""^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?(?:[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)
        |\.[0-9_]+(?:[eE][-+][0-9]+)?
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
    re.X,
)


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    yaml_implicit_resolvers = {
        letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def parse(text: str) -> Any:
    """What a YAML text says. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_Loader)

"""What a state-space layer needs to be tried alone: a layer by its name, and a pass of a few tokens."""

import pytest

from builder import registry
from tests.choices import slot


@pytest.fixture
def layer(site):
    """layer(name, d_model=32, **knobs): a layer with its first values, built alone."""

    def make(name, d_model=32, **knobs):
        made = registry.find("ssm", name).Config.model_validate(slot("ssm", name, **knobs))
        return made.component(made, site(d_model=d_model))

    return make

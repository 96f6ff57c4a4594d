"""Every way in which a config.json states rotary positions, read and written."""

import pytest

from builder.errors import ConfigError
from builder.interop.hf_config import HFConfig
from builder.interop.rope import Rope

LENGTH = {"original_max_position_embeddings": 16}
SCALINGS = {
    "linear": ({"factor": 2.0}, {}),
    "llama3": ({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}, LENGTH),
    "yarn": ({"factor": 4.0, "beta_fast": 32.0, "mscale": 0.7, "truncate": False}, LENGTH),
    "longrope": ({"short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0], "factor": 4.0}, LENGTH),
}


class Stated:
    """Facts that hold one position slot."""

    def __init__(self, slot):
        self.slot = slot

    def get(self, path, default=None):
        return self.slot if path == "position" else default


def read(values, **options):
    config = HFConfig(values)
    slot = Rope(**options).read(config)["position"]
    config.finish({"max_position_embeddings": (64,)}, "llama")
    return slot


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_old_and_new_spelling(kind, key):
    knobs, length = SCALINGS[kind]
    scaling = {key: kind} | knobs | length
    wanted = {"name": kind} | knobs | ({"original_length": 16} if length else {})
    new = read({"rope_parameters": scaling | {"rope_theta": 500.0}})
    assert new == {"name": "rope", "theta": 500.0, "fraction": 1.0, "scaling": wanted}
    assert read({"rope_theta": 500.0, "rope_scaling": scaling}) == new


@pytest.mark.parametrize("kind", SCALINGS)
def test_what_is_written_is_read_back(kind):
    knobs, length = SCALINGS[kind]
    scaling = {"name": kind, **knobs, "original_length": 16} if length else {"name": kind, **knobs}
    slot = {"name": "rope", "theta": 500.0, "fraction": 0.5, "scaling": scaling}
    written = Rope().write(Stated(slot))
    assert written["rope_parameters"]["rope_theta"] == written["rope_theta"] == 500.0
    assert "rope_theta" not in written["rope_scaling"]
    assert read(written) == slot
    assert read({key: written[key] for key in ("rope_parameters",)}) == slot
    assert read({key: written[key] for key in written if key != "rope_parameters"}) == slot


def test_dynamic_stretches_from_max_position_embeddings():
    slot = {"name": "rope", "theta": 1e4, "scaling": {"name": "dynamic", "factor": 2.0, "original_length": 64}}
    written = Rope().write(Stated(slot))
    assert written["max_position_embeddings"] == 64 and "original_max_position_embeddings" not in str(written)
    assert read(written)["scaling"] == {"name": "dynamic", "factor": 2.0}


def test_what_a_family_takes_for_granted():
    assert read({}, theta=7.0, fraction=0.25) == {"name": "rope", "theta": 7.0, "fraction": 0.25}
    assert read({"rotary_pct": 0.5}, fraction_names=("rotary_pct",))["fraction"] == 0.5
    assert read({}, pairing="interleaved")["pairing"] == "interleaved"


def test_whole_heads_are_stated_where_a_part_is_taken_for_granted():
    slot = {"name": "rope", "theta": 500.0, "fraction": 1.0}
    written = Rope(fraction=0.25, fraction_names=("rotary_pct",)).write(Stated(slot))
    assert written["rope_parameters"]["partial_rotary_factor"] == written["rotary_pct"] == 1.0
    assert "partial_rotary_factor" not in str(Rope().write(Stated(slot)))


def test_a_section_for_some_layers():
    values = {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}}
    config = HFConfig(values)
    assert Rope(section="sliding_attention").read(config)["position"]["theta"] == 1e4
    with pytest.raises(ConfigError, match="full_attention"):
        config.finish({}, "llama")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"rope_scaling": {"type": "mrope"}}, "rope_scaling.type: found 'mrope'"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "base": 3}}, "rope_parameters.base: found 3"),
        ({"rope_parameters": {"rope_theta": 5.0}, "rope_theta": 6.0}, "rope_theta: found 6.0"),
        ({"rope_parameters": {"rope_type": "default", "factor": 2.0}}, "rope_parameters.factor: found 2.0"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0} | LENGTH}, "original_max_position_embeddings"),
        (
            {
                "rope_scaling": {"type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_type": "yarn", "factor": 2.0},
            },
            "rope_type",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "linear", "factor": 4}},
            "factor",
        ),
    ],
)
def test_what_is_unknown_or_contradicts_is_refused(values, named):
    with pytest.raises(ConfigError, match="problem") as refused:
        read(values)
    assert named in str(refused.value)

"""Jobs that measure plain decoders are given one, and any other model is refused with what to write."""

import pytest

from builder import compose, load
from builder.bench.suite import measure
from builder.coordinates import refuse
from builder.errors import ConfigError
from builder.plain import refuse_others

OTHERS = [
    (["model=encoder", "objective=masked"], "model.kind"),
    (["model=encoder_decoder", "objective=span_corruption"], "model.kind"),
    (["model.prefix=true", "objective=prefix_lm"], "objective"),
]


@pytest.mark.parametrize(("overrides", "path"), OTHERS, ids=str)
def test_what_is_no_plain_decoder_is_refused(overrides, path):
    spec = load(compose(overrides))
    for ask in (
        lambda: refuse_others(spec, "this"),
        lambda: refuse(spec, [64, 128]),
        lambda: measure(spec, None, False, print),
    ):
        with pytest.raises(ConfigError) as caught:
            ask()
        assert [problem.path for problem in caught.value.problems] == [path] and caught.value.problems[0].fix


def test_a_plain_decoder_is_not():
    refuse_others(load(compose([])), "this")

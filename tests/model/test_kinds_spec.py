"""What a config may say of kinds, towers, heads and shared layers, and how what it may not say is refused."""

import pytest
from pydantic import ValidationError

TWO = {"kind": "encoder_decoder", "pattern": ("attention+cross+ffn",), "cross": {"name": "cross", "n_heads": 4}}
REFUSED = [
    ({"kind": "encoder_decoder"}, "encoder", "has a section encoder"),
    ({"encoder": {"n_layers": 2}}, "encoder", "only an encoder_decoder has one"),
    ({"kind": "encoder_decoder", "encoder": {"n_layers": 2}}, "pattern", "no layer reads what the encoder makes"),
    ({"kind": "encoder", "prefix": True}, "prefix", "only a decoder's prompt"),
    ({"pattern": ("attention+cross+ffn",), "cross": TWO["cross"]}, "pattern", r"a layer is mixer \[\+ ffn\]"),
    ({**TWO, "encoder": {"n_layers": 2, "pattern": ("attention+cross",)}}, "encoder.pattern", r"mixer \[\+ ffn\]"),
    ({**TWO, "pattern": ("attention+ffn+cross",), "encoder": {"n_layers": 2}}, "pattern", r"mixer \[\+ cross\]"),
    ({**TWO, "cross": {**TWO["cross"], "window": 3}, "encoder": {"n_layers": 2}}, "cross.window", "another"),
    ({"shared": ("ffn",)}, "shared", "entries of model.pattern"),
    ({"head": {"name": "classifier", "n_classes": 3}}, "tie_embeddings", "no rows for the vocabulary"),
    ({"head": {"transform_bias": False}}, "head.transform_bias", "nothing reads it"),
]


@pytest.mark.parametrize(("changes", "path", "rule"), REFUSED)
def test_what_does_not_go_together_is_refused_by_its_path(spec, changes, path, rule):
    with pytest.raises(ValidationError, match=rule) as caught:
        spec(**changes)
    assert path in [".".join(map(str, error["loc"])) for error in caught.value.errors()]


def test_the_encoder_is_a_tower_of_the_same_slots(spec):
    whole = spec(**TWO, encoder={"n_layers": 3, "pattern": ("attention+ffn", "attention")})
    source = whole.source
    assert source is not None and (source.kind, source.causal, source.n_layers) == ("encoder", False, 3)
    assert list(source.kinds) == ["attention+ffn", "attention"] and list(whole.kinds) == ["attention+cross+ffn"]
    assert (whole.writes, source.writes) == (6, 5)
    assert whole.site(0).two_sided is False and source.site(0).two_sided is True
    assert spec(prefix=True).site(0).two_sided and spec(prefix=True).site(0).causal

"""What a step reads: whole windows in full, and of padded rows what is real."""

import json

from builder import compose, load
from builder.data import cache_folder, prepare
from builder.experiments.step_size import tokens_of_step
from tests.tiny_run import spec_of


def test_whole_windows_are_counted_in_full(tmp_path):
    spec = spec_of(tmp_path)
    assert tokens_of_step(spec, prepare(spec, cache=cache_folder())) == spec.rows * spec.model.train_length


def test_padding_is_no_token(tmp_path):
    """Texts of 3 letters and their end, in rows that may hold 32."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": f"{n:03}", "label": str(n % 2)}) + "\n" for n in range(64)))
    kinds = ["model=encoder", "objective=classification", "model/head=classifier", "model.head.n_classes=2"]
    more = ["model.tie_embeddings=false", "data=files", f"data.path={file}", "data.form=labelled", "batch.sequences=8"]
    spec = load(compose([*kinds, *more, "model.train_length=32"]))
    assert tokens_of_step(spec, prepare(spec, cache=cache_folder())) == 8 * 4

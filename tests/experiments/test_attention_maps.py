"""Attention maps: the weights against the formula, their rows, and that nothing but a picture comes of them."""

import io
import os

import numpy as np
import pytest
import torch
from PIL import Image

from builder import build, compose, load
from builder.data.tokenizer.bytes import Bytes
from builder.experiments import attention_capture, attention_maps
from builder.experiments.attention_maps import SHOWN_HEADS, TOKENS, draw, labels, maps, text
from tests.tiny_run import overrides, summary, trained
from tests.wandb_log import exit_code, items, of_kind


def model_of(folder, *more):
    return build(load(compose(overrides(folder, *more))).model, seed=0).eval()


def tokens(length=12):
    return torch.randint(0, 256, (1, length), generator=torch.Generator().manual_seed(0))


def test_the_weights_are_those_of_the_formula(tmp_path):
    """softmax(q k^T / sqrt(E)) over the keys that stand before, in float64, from the weights of the layer."""
    model = model_of(tmp_path, "model/position=none", "model.attention.n_heads=2")
    for weight in model.parameters():
        weight.data = weight.data * 5  # far from even weights
    given = tokens()
    x = model.embedding.weight[given[0]].double()  # (T, D)
    block = model.layers[0].state_dict()
    scale = next(value for name, value in block.items() if "norm" in name).double()
    normed = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * scale
    q, k = (normed @ block[f"mixer.{name}.weight"].double().T for name in "qk")  # (T, 2 E)
    found = maps(model, given)["layer-0"]
    for head in range(2):
        part = slice(head * 8, head * 8 + 8)
        for row in range(12):
            scores = (q[row, part] @ k[: row + 1, part].T) / 8**0.5
            wanted = torch.zeros(12, dtype=torch.float64)
            wanted[: row + 1] = torch.softmax(scores, -1)
            torch.testing.assert_close(found[head, row].double(), wanted, atol=1e-5, rtol=1e-4)
    assert found.std() > 0.1, "even weights would agree with anything"


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["model/attention=mqa"],
        ["model/attention=mla"],
        ["model/position=alibi"],
        ["model.attention.window=3"],
        ["model.attention.softcap=5.0"],
        ["model.n_layers=3", "model.attention.kernel=eager"],
    ],
    ids=lambda more: "-".join(more) or "default",
)
def test_rows_sum_to_one_and_see_nothing_ahead(tmp_path, more):
    model = model_of(tmp_path, *more)
    found = maps(model, tokens())
    assert list(found) == [f"layer-{number}" for number in range(len(model.layers))]
    for weights in found.values():
        assert weights.shape == (2, 12, 12)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 12))
        assert all(weights[:, row, row + 1 :].abs().max() == 0 for row in range(11))


def test_a_sink_takes_what_rows_lack(tmp_path):
    """The negative control of the sums."""
    weights = maps(model_of(tmp_path, "model.attention.sinks=true"), tokens())["layer-0"]
    assert (weights.sum(-1) < 0.99).all()


def test_the_model_is_left_as_it_was(tmp_path, monkeypatch):
    model, given = model_of(tmp_path), tokens()
    before, kernels = model(given).logits, model.layers[0].mixer.kernels
    maps(model, given)
    assert model.layers[0].mixer.kernels is kernels
    monkeypatch.setattr(attention_capture, "weigh", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        maps(model, given)
    assert model.layers[0].mixer.kernels is kernels and torch.equal(model(given).logits, before)


class Letters:
    """A tokenizer of single letters, with one special id."""

    eos, pad, start, specials, chat = 26, 26, 26, {"eos": 26}, None

    def encode(self, text):
        return [ord(letter) - ord("a") for letter in text]

    def begun(self, ids):
        return ids

    def decode(self, ids):
        return "".join("" if id == 26 else " \n\t$\x07ab"[id] if id < 7 else "a word that is long" for id in ids)


def test_tokens_as_they_are_shown():
    assert labels(Letters(), [0, 1, 2, 3, 4, 5, 26, 9]) == ["␣", "↵", "⇥", "$", "�", "a", "<eos>", "a␣word␣…"]


@pytest.mark.parametrize(("prompt", "length"), [("abc", TOKENS), ("a" * 50, TOKENS), ("", TOKENS)])
def test_a_text_is_a_prompt_and_what_follows(tmp_path, prompt, length):
    model = model_of(tmp_path)
    model.n_tokens = 27  # no more than the letters and eos
    model.head.bias = torch.nn.Parameter(torch.zeros(model.vocab_size).index_fill(0, torch.tensor(26), -1e9))
    ids, source = text(model, Letters(), prompt)
    assert source is None
    given = Letters().encode(prompt)[:TOKENS] or [26]
    assert ids[: len(given)] == given and len(ids) == length
    short = model_of(tmp_path, "model.deploy_length=20")
    assert len(text(short, Letters(), prompt)[0]) <= 20


def picture(weights, names):
    file = io.BytesIO()
    draw(weights, names, "Attention of layer 0", file)
    return np.asarray(Image.open(file).convert("L")).astype(int)


def test_a_text_is_a_prompt_alone_where_nothing_is_written(tmp_path):
    """A decoder that classifies reads from left to right, and has no token to say."""
    classifying = ["model/head=classifier", "model.head.n_classes=3", "model.tie_embeddings=false"]
    model = model_of(tmp_path, *classifying, "objective=classification", "data=files", "data.form=labelled")
    assert model.head.gives != "tokens" and text(model, Bytes(), "abc") == ([*b"abc"], None)


def test_a_weight_is_dark_where_it_stands():
    one = torch.zeros(1, 6, 6)
    blank = picture(one, list("abcdef"))
    one[0, 4, 1] = 1.0
    seen = picture(one, list("abcdef"))
    ys, xs = np.nonzero(blank - seen > 100)
    left, right = np.nonzero((blank < 40).mean(0) > 0.3)[0][[0, 1]]
    top, bottom = np.nonzero((blank < 40).mean(1) > 0.3)[0][[0, -1]]
    assert 4 / 6 < (ys.mean() - top) / (bottom - top) < 5 / 6, "queries go down"
    side = bottom - top  # a map is square
    assert 1 / 6 < (xs.mean() - left) / side < 2 / 6, "keys go across"


@pytest.mark.parametrize(("heads", "length"), [(1, 1), (2, 4), (6, 32), (64, 32)])
def test_it_fits_whatever_the_model(heads, length):
    weights = torch.softmax(torch.randn(heads, length, length), -1)
    image = picture(weights, ["$\\frac{"] * length)
    assert image.shape[0] < 2100 and image.shape[1] < 2100
    assert heads <= SHOWN_HEADS or image.shape == picture(weights[:SHOWN_HEADS], ["a"] * length).shape


def test_a_run_with_wandb_has_them(tmp_path):
    path = trained(tmp_path, "logger=wandb_offline", "model.n_layers=2").path
    exit_code(path)
    history = [items(record.item) for record in of_kind(path, "history")]
    for layer in (0, 1):
        (row,) = [row for row in history if f"attention/layer-{layer}/filenames" in row]
        (file,) = path.glob(f"wandb/offline-run-*/files/{row[f'attention/layer-{layer}/filenames'][0]}")
        assert row["step"] == 12
        assert file.read_bytes() == (path / "attention_maps" / f"layer-{layer}.png").read_bytes()


def test_a_run_without_a_place_for_pictures_draws_none(tmp_path):
    assert not (trained(tmp_path, "logger=none").path / "attention_maps").exists()


def test_what_fails_in_drawing_is_not_the_runs_fault(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("builder.experiments.attention_maps.draw", lambda *_: os.stat("/nowhere"))
    path = trained(tmp_path, "logger=wandb_offline").path
    assert "attention maps weren't drawn (FileNotFoundError" in capsys.readouterr().err
    assert summary(path)["status"] == "completed"


def test_every_tower_is_drawn_over_its_own_tokens(tmp_path):
    """Of an encoder-decoder what either tower and the reading between them look at; a masked prompt with its masks."""
    words = Bytes(("mask",))
    two = ["model=encoder_decoder", "model.cross.n_heads=2", "model.encoder.n_layers=1", "model.n_layers=1"]
    model = model_of(tmp_path, *two, "objective=span_corruption")
    model.n_tokens = len(words)
    ids, source = text(model, words, "abc")
    assert source == [*b"abc", words.eos] and ids[0] == words.start
    found = maps(model, torch.tensor([ids]), torch.tensor([source]))
    sizes = {"layer-0": (len(ids), len(ids)), "cross-0": (len(ids), 4), "encoder-0": (4, 4)}
    assert {place: tuple(weights.shape[1:]) for place, weights in found.items()} == sizes
    assert all((weights.sum(-1) - 1).abs().max() < 1e-5 for weights in found.values())
    pictures = attention_maps.write(model, words, "abc", tmp_path / "maps", "")
    assert set(pictures) == set(sizes) and all(Image.open(file).format == "PNG" for file in pictures.values())
    encoder = model_of(tmp_path, "model=encoder", "objective=masked")
    assert text(encoder, words, "a<mask>b") == ([97, words.named["mask"], 98, words.eos], None)

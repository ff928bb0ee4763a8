"""What users' code relies on without naming it: public names, the order of an output's fields, old signatures."""

import importlib
import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin

import google_crc32c
import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import constants
from safetensors.numpy import load_file

import elmo_hf
from elmo_hf import ElmoConfig, ElmoForPreTrainingOutput, ElmoModel, ElmoTokenizer, allennlp
from elmo_hf.conversion.kept_models import KeptModels
from elmo_hf.conversion.published import PUBLISHED, absolute
from elmo_hf.embedding.chosen_words import ChosenWords
from elmo_hf.embedding.input_documents import Documents
from elmo_hf.embedding.shards import FORMATS, EmbeddingOptions, embed_documents
from elmo_hf.embedding.window_vectors import Selection
from elmo_hf.heads import HEADS as TABLE_OF_HEADS
from tests.helpers.commands import output_of
from tests.helpers.task_models import LSTM, make_task_model
from tests.helpers.tiny_inputs import TINY, random_inputs, word_config
from tests.helpers.tiny_lm import WORDS, tiny_lm, tiny_word_lm

PUBLIC_NAMES = """
    BiLMState ElmoConfig ElmoForCausalLM ElmoForPreTraining ElmoForPreTrainingOutput ElmoForQuestionAnswering
    ElmoForSequenceClassification ElmoForTokenClassification ElmoModel ElmoModelOutput ElmoPreTrainedModel ElmoTokenizer
    PredictedWord WordVectors extract_answers load pipeline predict_words tiny_model tiny_tokenizer
"""
OUTPUT_FIELDS = """
    last_hidden_state pooler_output representations token_embeddings state_hidden state_cell hidden_states
"""
PRETRAINING_OUTPUT_FIELDS = """
    loss forward_loss backward_loss sampled_forward_loss sampled_backward_loss forward_log_probs backward_log_probs
    forward_logits backward_logits state_hidden state_cell hidden_states
"""

# Renaming a key or changing a default breaks every saved folder.
CONFIG = dict(
    token_encoder="char_cnn", alphabet="bytes", vocab_size=262, num_input_words=0, word_embedding_size=None,
    max_word_length=50, char_embedding_size=16, char_activation="relu", num_highway_layers=2, char_projection=True,
    char_filters=[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
    projection_size=512, cell_size=4096, num_hidden_layers=2, bidirectional=True, cell_projection=True, cell_clip=3.0,
    projection_clip=3.0, use_skip_connections=True, forget_bias=1.0, aligned_layers=None, hidden_size=1024,
    num_output_representations=1, representation_dropout=0.5, scalar_mix_weights=None, scalar_mix_trainable=True,
    scalar_mix_layer_norm="none", scalar_mix_l2=0.0, layer_mix="scalar", freeze_bilm=True, task_encoder="none",
    task_hidden_size=256,
    word_vectors=None, mark_size=None, classifier_dropout=0.0, pooling="mean", text_pairs=False, use_crf=False,
    num_softmax_words=None, softmax="full", num_softmax_samples=8192, share_embedding_softmax=False, lm_dropout=0.1,
    pad_token_id=0, bos_token_id=257, eos_token_id=258,
)  # fmt: skip
# The values of config keys that have a few.
CHOICES = dict(
    token_encoder=("char_cnn", "word_embedding"), alphabet=("bytes", "code_points"), char_activation=("relu", "tanh"),
    scalar_mix_layer_norm=("none", "batch", "word"), layer_mix=("scalar", "linear"), task_encoder=("none", "lstm"),
    pooling=("mean", "max", "attention"), softmax=("full", "sampled"), pad_token_id=(0,),
)  # fmt: skip
# Names and shapes of the parameters of `tiny_config`.
STATE_DICT_KEYS = {
    "token_encoder.embedding.weight": (262, 5),
    "token_encoder.convolutions.0.weight": (3, 5, 1),
    "token_encoder.convolutions.0.bias": (3,),
    "token_encoder.convolutions.1.weight": (4, 5, 2),
    "token_encoder.convolutions.1.bias": (4,),
    "token_encoder.convolutions.2.weight": (6, 5, 3),
    "token_encoder.convolutions.2.bias": (6,),
    "token_encoder.highways.0.transform.weight": (13, 13),
    "token_encoder.highways.0.transform.bias": (13,),
    "token_encoder.highways.0.gate.weight": (13, 13),
    "token_encoder.highways.0.gate.bias": (13,),
    "token_encoder.projection.weight": (7, 13),
    "token_encoder.projection.bias": (7,),
    **{
        f"bilm.layers.{layer}.{direction}_lstm.{name}": shape
        for layer in (0, 1)
        for direction in ("forward", "backward")
        for name, shape in {
            "input_linear.weight": (36, 7),
            "input_linear.bias": (36,),
            "recurrent_linear.weight": (36, 7),
            "projection.weight": (7, 9),
        }.items()
    },
    "scalar_mixes.0.logits": (3,),
    "scalar_mixes.0.scale": (1,),
}
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "PreTraining", "CausalLM")
AUTO_MAP = {"AutoConfig": "configuration_elmo.ElmoConfig", "AutoModel": "modeling_elmo.ElmoModel"}
AUTO_MAP |= {f"AutoModelFor{head}": f"heads_elmo.ElmoFor{head}" for head in HEADS[:3]}
AUTO_MAP |= {f"AutoModelFor{head}": f"language_model_elmo.ElmoFor{head}" for head in HEADS[3:]}

ADDRESS = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/2x4096_512_2048cnn_2xhighway/elmo_2x4096_512_2048cnn_2xhighway"
ALLENNLP_SIGNATURES = {
    allennlp.Elmo: """
        options_file weight_file num_output_representations requires_grad=False do_layer_norm=False dropout=0.5
        vocab_to_cache=None keep_sentence_boundaries=False scalar_mix_parameters=None module=None
    """,
    allennlp.ElmoEmbedder: f"options_file={ADDRESS}_options.json weight_file={ADDRESS}_weights.hdf5 cuda_device=-1",
    allennlp.ElmoEmbedder.embed_file: """
        self input_file output_file_path output_format=all batch_size=64 forget_sentences=False use_sentence_keys=False
    """,
}

LSTM_KEYS = """
    forward_lstm.weight_ih_l0 forward_lstm.weight_hh_l0 forward_lstm.bias_ih_l0 forward_lstm.bias_hh_l0
    backward_lstm.weight_ih_l0 backward_lstm.weight_hh_l0 backward_lstm.bias_ih_l0 backward_lstm.bias_hh_l0
"""
TASK_KEYS = {
    "classification": "classifier.weight classifier.bias",
    "pairs": "classifier.weight classifier.bias pooler.query.weight",
    "labelling": "classifier.weight classifier.bias",
    "crf": "classifier.weight classifier.bias crf.transitions crf.start crf.end",
    "questions": "attention.question.weight attention.product.weight qa_outputs.weight qa_outputs.bias",
}

SAVED_FILES = """
    config.json config_sentence_transformers.json configuration_elmo.py heads_elmo.py language_model_elmo.py
    layers_elmo.py model.safetensors modeling_elmo.py modules.json scan_elmo.py sentence_bert_config.json
    tokenization_elmo.py tokenizer.json tokenizer_config.json
"""


def test_a_saved_folder_holds_these_files(tiny_model: ElmoModel, tmp_path: Path) -> None:
    for model in (tiny_model, make_task_model("classification"), tiny_lm()):
        folder = tmp_path / type(model).__name__
        model.save_pretrained(folder, max_shard_size="1GB")
        ElmoTokenizer(max_word_length=11).save_pretrained(folder)
        assert sorted(path.name for path in folder.iterdir()) == SAVED_FILES.split()
    model.save_pretrained(tmp_path, state_dict=dict(reversed(model.state_dict().items())))
    shards = json.loads((tmp_path / "model.safetensors.index.json").read_bytes())["weight_map"]
    files = [{shards[name] for name in shards if name.startswith("softmax.") == own} for own in (False, True)]
    assert len(files[0]) == 1
    assert files[0].isdisjoint(files[1])
    tokenizer_config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert tokenizer_config["auto_map"] == {"AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None]}
    assert tokenizer_config["saved_vocabularies"] == []


# Columns and index of shards: names and types in parquet, names of arrays elsewhere, keys of a line of `_index.jsonl`.
SHARD_COLUMNS = {
    "document": "string",
    "index": "int64",
    "sentence": "string",
    "vectors": "list<element: fixed_size_list<element: int8>[16]>",
    "scales": "list<element: float>",
    "positions": "list<element: int32>",
    "chosen_words": "list<element: string>",
}
SHARD_ARRAYS = "0 0.positions 0.scales 1 1.positions 1.scales"
INDEX_LINE = {"shard": "part-00000.parquet", "row": 0, "rows": 2, "document": "a.txt", "index": 0, "number": 0}


# The columns of `elmo-hf usages` for a model of two layers, and the options of the command.
USAGE_COLUMNS = """
    corpus document sentence position before word after to_A_0 to_A_1 to_A_2 to_A_mix to_B_0 to_B_1 to_B_2 to_B_mix
"""
USAGE_OPTIONS = "word output forms most layer plot vectors seed column split-into-words encoding device".split()


def test_usages_has_its_options_and_columns(tiny_folder: Path, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.txt", "b.txt", "bank.csv")]
    for path in paths[:2]:
        path.write_text("The bank\n")
    vectors = tmp_path / "vectors.tsv"
    output_of("usages", tiny_folder, *paths[:2], "--word", "bank", "-o", paths[2], "--vectors", vectors)
    numbers = [f"v{number}" for number in range(1, 17)]
    assert vectors.read_text().splitlines()[0].split("\t") == [*USAGE_COLUMNS.split()[:4], "word", *numbers]
    assert paths[2].read_text().splitlines()[0].split(",") == USAGE_COLUMNS.split()
    assert [each for each in USAGE_OPTIONS if f"--{each}" not in output_of("usages", "--help")] == []


def test_published_models_keep_their_place_names_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches that were filled once stay valid, and scripts name a mirror."""
    assert KeptModels().folder == Path(constants.HF_HOME) / "elmo-hf" / "models"
    assert {"small", "medium", "original", "5.5B", "original-lm", "seqvec", "manylangs-zh"} <= PUBLISHED.keys()
    monkeypatch.setenv("ELMO_HF_BASE_URL", "https://example.org/elmo")
    assert absolute({"weights": ["a/w.hdf5", "https://b/w.hdf5"]}) == {
        "weights": ["https://example.org/elmo/a/w.hdf5", "https://b/w.hdf5"]
    }
    help_text = output_of("models", "--help")
    assert all(word in help_text for word in ("[NAME]", "--remove"))


# Names of the parts for old code and other libraries, by module.
PARTS = {
    "elmo_hf.allennlp": "Elmo ElmoEmbedder batch_to_ids",
    "elmo_hf.dropins.manylangs": "Embedder",
    "elmo_hf.dropins.simple_elmo": "ElmoModel",
    "elmo_hf.sklearn": "ElmoVectorizer",
    "elmo_hf.stateful": "StatefulElmo",
    "elmo_hf.tfhub": "Module load",
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_for_old_code_have_their_names(name: str) -> None:
    module = importlib.import_module(name)
    assert [each for each in PARTS[name].split() if not hasattr(module, each)] == []


def test_a_star_imports_the_public_names() -> None:
    assert elmo_hf.__all__ == PUBLIC_NAMES.split()
    assert all(getattr(elmo_hf, name).__name__ == name for name in elmo_hf.__all__)


def test_a_tuple_of_outputs_has_the_order_of_the_fields(tiny_model: ElmoModel) -> None:
    """Pipelines and traced models take outputs by their places."""
    inputs = random_inputs(tiny_model.config, [3, 2]) | {"output_hidden_states": True}
    by_place, by_name = tiny_model(**inputs, return_dict=False), tiny_model(**inputs)
    expected = tuple(by_name[name] for name in OUTPUT_FIELDS.split())
    torch.testing.assert_close(by_place, expected, rtol=0, atol=0)
    assert [field.name for field in fields(ElmoForPreTrainingOutput)] == PRETRAINING_OUTPUT_FIELDS.split()


def test_the_config_has_its_keys_values_and_defaults_and_names_every_auto_class() -> None:
    written = ElmoConfig().to_dict()
    assert {name: written[name] for name in CONFIG} == CONFIG
    choices = {field.name: get_args(field.type) for field in fields(ElmoConfig) if get_origin(field.type) is Literal}
    assert choices == CHOICES
    assert set(ElmoConfig().to_diff_dict()) - {"model_type", "transformers_version", "auto_map"} == set(CONFIG)
    assert written["auto_map"] == AUTO_MAP
    assert ElmoConfig().keys_to_ignore_at_inference == ["state_hidden", "state_cell"]


def test_signatures_are_allennlps() -> None:
    for function, expected in ALLENNLP_SIGNATURES.items():
        parameters = inspect.signature(function).parameters.values()
        found = [each.name + (f"={each.default}" if each.default is not each.empty else "") for each in parameters]
        assert found == expected.split()


def test_weights_of_words_have_their_names() -> None:
    words = ElmoModel(word_config()).token_encoder.state_dict()
    assert {name: tuple(part.shape) for name, part in words.items()} == {"embedding.weight": (19, 7)}
    ids = {"vocab_size": 15, "num_input_words": 5, "word_embedding_size": 6, "bos_token_id": 2, "eos_token_id": 3}
    fields = {"alphabet": "code_points", "char_filters": [[1, 2]], "num_highway_layers": 0, "char_embedding_size": 4}
    both = ElmoModel(ElmoConfig(**ids, **fields, projection_size=7, cell_size=8)).token_encoder.state_dict()
    assert {name: tuple(part.shape) for name, part in both.items()} == {
        "embedding.weight": (10, 4),
        "word_embedding.weight": (6, 6),
        "convolutions.0.weight": (2, 4, 1),
        "convolutions.0.bias": (2,),
        "projection.weight": (7, 8),
        "projection.bias": (7,),
    }


def test_matrices_of_aligned_layers_have_their_name() -> None:
    added = ElmoModel(ElmoConfig(**TINY, aligned_layers=[2, 0])).state_dict().keys() - STATE_DICT_KEYS.keys()
    assert added == {"bilm.alignment"}


def test_vectors_of_marks_have_their_name() -> None:
    with_marks, without = (make_task_model("crf", mark_size=size).state_dict().keys() for size in (3, None))
    assert with_marks - without == {"task_encoder.mark_vectors.weight"}


def test_weights_of_heads_have_their_names() -> None:
    encoder = {f"elmo.{name}": shape for name, shape in STATE_DICT_KEYS.items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tiny_lm().state_dict().items()}
    assert shapes == encoder | {"softmax.weight": (len(WORDS), 7), "softmax.bias": (len(WORDS),)}
    shared = tiny_word_lm(share_embedding_softmax=True).state_dict()
    assert {name for name in shared if name.startswith("softmax.")} == {"softmax.bias"}
    for task, names in TASK_KEYS.items():
        for changes, parts in (({}, []), (LSTM, ["task_encoder.lstm", *["lstm"] * (task == "questions")])):
            model = make_task_model(task, **changes, **({"pooling": "attention"} if task == "pairs" else {}))
            expected = {*names.split(), *(f"{part}.{key}" for part in parts for key in LSTM_KEYS.split())}
            assert {name for name in model.state_dict() if not name.startswith("elmo.")} == expected


def test_shards_have_their_columns_and_their_index(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("The ferry left .\nYes\n")
    selection = Selection("mix", "int8", ChosenWords("ferry|Yes"))
    for shard_format in FORMATS:
        output = f"{shard_format}/"
        documents = Documents.find(["a.txt"], output)
        options = EmbeddingOptions(shard_format=shard_format)
        embed_documents(mixed_model, tiny_tokenizer, documents, output, selection, options)
    schema = pq.read_schema("parquet/part-00000.parquet")
    assert {field.name: str(field.type) for field in schema} == SHARD_COLUMNS
    with np.load("npz/part-00000.npz") as arrays, h5py.File("hdf5/part-00000.hdf5") as file:
        found = [sorted(arrays), sorted(load_file("safetensors/part-00000.safetensors")), sorted(file)]
    assert found == [SHARD_ARRAYS.split()] * 2 + [[*SHARD_ARRAYS.split(), "sentence_to_index"]]
    Path("a.fasta").write_text(">sp|P1|A x\nMKV\n")
    for suffix in ("npz", "safetensors", "hdf5"):
        output = f"{suffix}.{suffix}"
        embed_documents(mixed_model, tiny_tokenizer, Documents.find(["a.fasta"], output), output, Selection("pooled"))
    with np.load("npz.npz") as arrays, h5py.File("hdf5.hdf5") as file:
        found = [sorted(arrays), sorted(load_file("safetensors.safetensors")), sorted(file)]
    assert found == [["sp|P1|A"], ["sp|P1|A"], ["0", "sentence_to_index", "sp|P1|A"]]
    names = sorted(path.name for path in Path("npz").iterdir())
    assert names == ["_index", "_index.jsonl", "_job.json", "part-00000.npz"]
    (line,) = [json.loads(line) for line in Path("parquet/_index.jsonl").read_text().splitlines()]
    checksum = google_crc32c.value(Path("parquet/part-00000.parquet").read_bytes())
    assert line == INDEX_LINE | {"checksum": f"{checksum:08x}"}


def test_the_table_of_heads_has_the_auto_classes_that_configs_carry() -> None:
    references = {head.auto_class: head.model_class.__name__ for head in TABLE_OF_HEADS}
    assert references == {name: path.split(".")[1] for name, path in AUTO_MAP.items() if name != "AutoConfig"}

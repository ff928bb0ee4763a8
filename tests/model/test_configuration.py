"""`ElmoConfig`: defaults, legal and illegal values, and its JSON."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from elmo_hf import ElmoConfig, ElmoModel

# Promises: renaming a key breaks every saved folder.
CONFIG_KEYS = {
    "token_encoder",
    "alphabet",
    "vocab_size",
    "num_input_words",
    "word_embedding_size",
    "max_word_length",
    "char_embedding_size",
    "char_filters",
    "char_activation",
    "num_highway_layers",
    "char_projection",
    "projection_size",
    "cell_size",
    "num_hidden_layers",
    "bidirectional",
    "cell_projection",
    "cell_clip",
    "projection_clip",
    "use_skip_connections",
    "forget_bias",
    "hidden_size",
    "num_output_representations",
    "representation_dropout",
    "scalar_mix_weights",
    "scalar_mix_trainable",
    "scalar_mix_layer_norm",
    "scalar_mix_l2",
    "layer_mix",
    "freeze_bilm",
    "task_encoder",
    "task_hidden_size",
    "word_vectors",
    "classifier_dropout",
    "pooling",
    "text_pairs",
    "use_crf",
    "num_softmax_words",
    "softmax",
    "num_softmax_samples",
    "share_embedding_softmax",
    "lm_dropout",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
}
WORDS = {"token_encoder": "word_embedding", "vocab_size": 10}


@pytest.mark.parametrize(
    ("sizes", "num_parameters"),
    [
        ({}, 93_600_848),
        ({"cell_size": 2048, "projection_size": 256, "num_highway_layers": 1}, 28_027_728),
        ({"cell_size": 1024, "projection_size": 128, "num_highway_layers": 1}, 13_593_296),
    ],
    ids=["original", "medium", "small"],
)
def test_published_sizes_have_the_published_number_of_parameters(sizes: dict[str, int], num_parameters: int) -> None:
    config = ElmoConfig(**sizes)
    with torch.device("meta"):
        model = ElmoModel(config)
    mixes = sum(parameter.numel() for parameter in model.scalar_mixes.parameters())
    padding_row = config.char_embedding_size
    assert model.num_parameters() - mixes - padding_row == num_parameters


def test_json_keys_are_the_promised_ones() -> None:
    written = set(ElmoConfig().to_diff_dict()) - {"model_type", "transformers_version", "auto_map"}
    assert written == CONFIG_KEYS


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"char_activation": "tanh", "num_highway_layers": 0, "cell_clip": None, "projection_clip": 0.5},
        {"projection_size": 64, "cell_size": 64, "char_filters": ((1, 24), (2, 40)), "use_skip_connections": False},
        {"token_encoder": "word_embedding", "vocab_size": 801, "num_hidden_layers": 3, "forget_bias": 0.0},
        {"num_output_representations": 2, "scalar_mix_weights": [0.2, 0.3, 0.5], "scalar_mix_trainable": False},
        {"max_word_length": 7, "scalar_mix_layer_norm": "word"},
        {"bidirectional": False, "projection_size": 64},
        {"alphabet": "code_points", "vocab_size": 90, "bos_token_id": 28, "eos_token_id": 29}
        | {"num_input_words": 50, "word_embedding_size": 6, "forget_bias": 0.0},
        {"token_encoder": "word_embedding", "vocab_size": 90, "word_embedding_size": 6},
        {"num_softmax_words": 50, "softmax": "sampled", "num_softmax_samples": 50, "lm_dropout": 0.0},
        WORDS | {"share_embedding_softmax": True, "num_softmax_words": 9},
        {"freeze_bilm": ["token_encoder", "layer_2"], "layer_mix": "linear", "task_encoder": "lstm", "use_crf": True}
        | {"word_vectors": {"num_words": 7, "size": 3, "trainable": False}},
    ],
    ids=[
        "original",
        "no highway",
        "no projections",
        "words",
        "two mixes",
        "short words",
        "one direction",
        "both",
        "projected words",
        "sampled softmax",
        "shared softmax",
        "task",
    ],
)
def test_a_config_survives_json_unchanged(fields: dict[str, Any], tmp_path: Path) -> None:
    config = ElmoConfig(**fields)
    config.save_pretrained(tmp_path)
    assert ElmoConfig.from_pretrained(tmp_path).to_dict() == config.to_dict()
    assert AutoConfig.from_pretrained(tmp_path).to_diff_dict() == config.to_diff_dict()


def test_configs_of_different_sizes_are_not_equal() -> None:
    assert ElmoConfig(cell_size=8) != ElmoConfig(cell_size=9)


def test_projections_exist_exactly_where_sizes_differ_unless_set() -> None:
    config = ElmoConfig(projection_size=6, cell_size=6, char_filters=[[1, 2], [2, 4]])
    assert (config.char_projection, config.cell_projection) == (False, False)
    config = ElmoConfig(projection_size=6, cell_size=7, char_filters=[[1, 2], [2, 5]])
    assert (config.char_projection, config.cell_projection) == (True, True)
    config = ElmoConfig(projection_size=6, cell_size=6, cell_projection=True)
    assert config.cell_projection is True


def test_a_word_embedding_has_the_vocabularys_boundary_ids() -> None:
    config = ElmoConfig(token_encoder="word_embedding", vocab_size=10)
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 1, 2)
    config = ElmoConfig()
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 257, 258)


def test_ids_are_the_padding_then_characters_then_words() -> None:
    config = ElmoConfig(vocab_size=90, num_input_words=50, word_embedding_size=6, max_word_length=9)
    assert (config.num_characters, config.id_shape) == (39, (10,))
    assert (ElmoConfig().num_characters, ElmoConfig().id_shape) == (261, (50,))
    assert ElmoConfig(token_encoder="word_embedding", vocab_size=90).id_shape == ()


def test_word_vectors_count_as_features_before_the_projection() -> None:
    fields = {"projection_size": 6, "cell_size": 7, "vocab_size": 90, "num_input_words": 50}
    assert ElmoConfig(**fields, word_embedding_size=2, char_filters=[[1, 4]]).char_projection is False
    assert ElmoConfig(**fields, word_embedding_size=3, char_filters=[[1, 6]]).char_projection is True


def test_every_config_names_every_auto_class() -> None:
    heads = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "PreTraining")
    expected = {"AutoConfig": "configuration_elmo.ElmoConfig", "AutoModel": "modeling_elmo.ElmoModel"}
    expected |= {f"AutoModelFor{head}": f"heads_elmo.ElmoFor{head}" for head in heads}
    assert ElmoConfig().auto_map == expected


def test_a_name_that_is_no_field_warns_and_survives(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "transformers"):
        assert ElmoConfig(num_labels=3, attn_implementation="eager", use_cache=True, output_attentions=False)
        assert not caplog.messages
        ElmoConfig(poling="max", corpus={"words": 9}).save_pretrained(tmp_path)
        assert "ElmoConfig keeps poling, corpus, which nothing reads" in caplog.text
        caplog.clear()
        config = ElmoConfig.from_pretrained(tmp_path)
        assert "ElmoConfig keeps corpus, poling, which nothing reads" in caplog.text
    assert (config.poling, config.corpus, config.pooling) == ("max", {"words": 9}, "mean")
    config.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()


def test_configs_do_not_share_their_auto_classes() -> None:
    ElmoConfig().auto_map["AutoModel"] = "another"
    assert ElmoConfig().auto_map["AutoModel"] == "modeling_elmo.ElmoModel"


def test_a_filter_may_be_as_wide_as_a_word() -> None:
    assert ElmoConfig(max_word_length=4, char_filters=[[4, 2]]).char_filters == [[4, 2]]


def test_the_defaults_are_the_original_models() -> None:
    config = ElmoConfig()
    assert (config.cell_clip, config.projection_clip, config.use_skip_connections) == (3, 3, True)
    assert (config.forget_bias, config.char_activation, config.representation_dropout) == (1, "relu", 0.5)


def test_task_models_are_the_papers_by_default() -> None:
    config = ElmoConfig()
    assert (config.freeze_bilm, config.scalar_mix_l2, config.layer_mix, config.task_encoder) == (
        True,
        0,
        "scalar",
        "none",
    )
    assert (config.pooling, config.text_pairs, config.use_crf) == ("mean", False, False)


def test_the_state_is_not_a_prediction() -> None:
    assert ElmoConfig().keys_to_ignore_at_inference == ["state_hidden", "state_cell"]


def test_a_config_without_language_models_has_their_defaults() -> None:
    config = ElmoConfig()
    assert (config.num_softmax_words, config.softmax, config.num_softmax_samples) == (None, "full", 8192)
    assert (config.lm_dropout, config.share_embedding_softmax) == (0.1, False)

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
ILLEGAL: list[tuple[dict[str, Any], str]] = [
    ({"token_encoder": "bytes"}, r"`token_encoder` must be one of 'char_cnn', 'word_embedding', found 'bytes'"),
    ({"alphabet": "letters"}, r"`alphabet` must be one of 'bytes', 'code_points', found 'letters'"),
    ({"num_input_words": -1}, r"`num_input_words` must be a whole number of at least 0, found -1"),
    ({"word_embedding_size": 0}, r"`word_embedding_size` must be a whole number of at least 1, found 0"),
    ({"num_input_words": 8}, r"`num_input_words` and `word_embedding_size` go together .*, found 8 and None"),
    ({"word_embedding_size": 6}, r"`num_input_words` and `word_embedding_size` go together .*, found 0 and 6"),
    (
        {"num_input_words": 262, "word_embedding_size": 6},
        r"`num_input_words` must be below `vocab_size` = 262, found 262",
    ),
    (
        {"token_encoder": "word_embedding", "num_input_words": 8, "word_embedding_size": 6},
        r"`num_input_words` is for character models, found 8 for word input",
    ),
    ({"char_activation": "gelu"}, r"`char_activation` must be one of 'relu', 'tanh', found 'gelu'"),
    ({"scalar_mix_layer_norm": "yes"}, r"`scalar_mix_layer_norm` must be one of 'none', 'batch', 'word'"),
    ({"vocab_size": 0}, r"`vocab_size` must be a whole number of at least 1, found 0"),
    ({"max_word_length": 2}, r"`max_word_length` must be a whole number of at least 3, found 2"),
    ({"char_embedding_size": 1.5}, r"`char_embedding_size` must be a whole number of at least 1, found 1\.5"),
    ({"num_highway_layers": -1}, r"`num_highway_layers` must be a whole number of at least 0, found -1"),
    ({"projection_size": "8"}, r"`projection_size` must be a whole number of at least 1, found '8'"),
    ({"cell_size": True}, r"`cell_size` must be a whole number of at least 1, found True"),
    ({"num_hidden_layers": 0}, r"`num_hidden_layers` must be a whole number of at least 1, found 0"),
    ({"num_output_representations": 0}, r"`num_output_representations` must be a whole number of at least 1"),
    ({"cell_clip": 0}, r"`cell_clip` must be a positive number, or None to switch it off, found 0"),
    ({"projection_clip": -3}, r"`projection_clip` must be a positive number, or None to switch it off, found -3"),
    ({"cell_clip": float("nan")}, r"`cell_clip` must be a positive number"),
    ({"use_skip_connections": 1}, r"`use_skip_connections` must be True or False, found 1"),
    ({"scalar_mix_trainable": "no"}, r"`scalar_mix_trainable` must be True or False, found 'no'"),
    ({"forget_bias": None}, r"`forget_bias` must be a finite number, found None"),
    ({"representation_dropout": 1.0}, r"`representation_dropout` must be in \[0, 1\), found 1\.0"),
    ({"representation_dropout": -0.1}, r"`representation_dropout` must be in \[0, 1\), found -0\.1"),
    ({"forget_bias": float("inf")}, r"`forget_bias` must be a finite number, found inf"),
    ({"cell_clip": float("inf")}, r"`cell_clip` must be a positive number, or None to switch it off, found inf"),
    ({"cell_clip": True}, r"`cell_clip` must be a positive number, or None to switch it off, found True"),
    ({"cell_clip": 1e39}, r"`cell_clip` must be a positive number, or None to switch it off, found 1e\+39"),
    ({"forget_bias": True}, r"`forget_bias` must be a finite number, found True"),
    ({"scalar_mix_weights": [0.3, 0.3, 0.41]}, r"`scalar_mix_weights` are true weights and must sum to 1"),
    ({"char_filters": "12"}, r"`char_filters` must be a list of \[width, count\] pairs, found '12'"),
    ({"char_filters": []}, r"`char_filters` must be a list of \[width, count\] pairs, found \[\]"),
    ({"char_filters": [[1, 2], [3]]}, r"`char_filters` must be \[width, count\] pairs, found \[3\] at index 1"),
    ({"char_filters": [[0, 2]]}, r"`char_filters` must be \[width, count\] pairs, found \[0, 2\] at index 0"),
    (
        {"max_word_length": 4, "char_filters": [[5, 2]]},
        r"`char_filters` may be at most `max_word_length` = 4 characters wide, found \[5, 2\] at index 0",
    ),
    (
        {"cell_projection": False},
        r"`cell_projection` can be False only where its input is as wide as `projection_size` = 512, found 4096",
    ),
    ({"char_projection": "off"}, r"`char_projection` must be True or False, found 'off'"),
    ({"hidden_size": 512}, r"`hidden_size` must be left out, or 2 \* `projection_size` = 1024, found 512"),
    ({"pad_token_id": 1}, r"`pad_token_id` must be 0, found 1"),
    ({"bos_token_id": -1}, r"`bos_token_id` must be a whole number of at least 0, found -1"),
    ({"scalar_mix_weights": [0.5, 0.5]}, r"`scalar_mix_weights` must list `num_hidden_layers` \+ 1 = 3 weights"),
    ({"scalar_mix_weights": [-1, 1, 1]}, r"`scalar_mix_weights` must be numbers of at least 0"),
    ({"scalar_mix_weights": [0.0, 0.0, 0.0]}, r"`scalar_mix_weights` are true weights and must sum to 1"),
    ({"softmax": "hierarchical"}, r"`softmax` must be one of 'full', 'sampled', found 'hierarchical'"),
    ({"num_softmax_words": 2}, r"`num_softmax_words` must be a whole number of at least 3, found 2"),
    ({"num_softmax_samples": 0}, r"`num_softmax_samples` must be a whole number of at least 1, found 0"),
    (
        {"softmax": "sampled", "num_softmax_words": 20, "num_softmax_samples": 21},
        r"`num_softmax_samples` must be at most `num_softmax_words` = 20, found 21",
    ),
    ({"lm_dropout": 1}, r"`lm_dropout` must be in \[0, 1\), found 1"),
    ({"share_embedding_softmax": 1}, r"`share_embedding_softmax` must be True or False, found 1"),
    (
        {"share_embedding_softmax": True},
        r"`share_embedding_softmax` needs `token_encoder` 'word_embedding', found 'char_cnn'",
    ),
    (
        WORDS | {"share_embedding_softmax": True, "num_softmax_words": 10},
        r"`num_softmax_words` must be `vocab_size` - 1 = 9 with `share_embedding_softmax`, found 10",
    ),
    (
        WORDS | {"share_embedding_softmax": True, "word_embedding_size": 6},
        r"`word_embedding_size` must be None with `share_embedding_softmax`, .* width `projection_size`, found 6",
    ),
    ({"scalar_mix_l2": -0.1}, r"`scalar_mix_l2` must be a number of at least 0, found -0\.1"),
    ({"scalar_mix_l2": float("nan")}, r"`scalar_mix_l2` must be a number of at least 0, found nan"),
    ({"layer_mix": "mean"}, r"`layer_mix` must be one of 'scalar', 'linear', found 'mean'"),
    (
        {"layer_mix": "linear", "scalar_mix_trainable": False},
        r"`scalar_mix_trainable` belongs to `layer_mix='scalar'`, found it with `layer_mix='linear'`",
    ),
    ({"layer_mix": "linear", "scalar_mix_l2": 0.1}, r"`scalar_mix_l2` belongs to `layer_mix='scalar'`"),
    ({"layer_mix": "linear", "scalar_mix_weights": [0.0, 0.0, 1.0]}, r"`scalar_mix_weights` belongs to"),
    ({"layer_mix": "linear", "scalar_mix_layer_norm": "word"}, r"`scalar_mix_layer_norm` belongs to"),
    (
        {"freeze_bilm": ["layer_0"]},
        r"`freeze_bilm` must be True, False or a list of 'token_encoder', 'layer_1', 'layer_2', found \['layer_0'",
    ),
    ({"freeze_bilm": "layer_1"}, r"`freeze_bilm` must be True, False or a list of .*, found 'layer_1'"),
    ({"freeze_bilm": 1}, r"`freeze_bilm` must be True, False or a list of .*, found 1"),
    ({"task_encoder": "gru"}, r"`task_encoder` must be one of 'none', 'lstm', found 'gru'"),
    ({"task_hidden_size": 0}, r"`task_hidden_size` must be a whole number of at least 1, found 0"),
    ({"classifier_dropout": 1}, r"`classifier_dropout` must be in \[0, 1\), found 1"),
    ({"pooling": "last"}, r"`pooling` must be one of 'mean', 'max', 'attention', found 'last'"),
    ({"text_pairs": "yes"}, r"`text_pairs` must be True or False, found 'yes'"),
    ({"use_crf": None}, r"`use_crf` must be True or False, found None"),
]


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


def test_code_points_have_no_default_boundary_ids() -> None:
    with pytest.raises(ValueError, match="`bos_token_id` depends on the vocabulary where `alphabet` is 'code_points'"):
        ElmoConfig(alphabet="code_points", vocab_size=90)


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


@pytest.mark.parametrize(
    ("fields", "message"), ILLEGAL, ids=lambda value: next(iter(value)) if isinstance(value, dict) else ""
)
def test_an_illegal_field_is_named_with_its_legal_values(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ElmoConfig(**fields)


def test_a_field_replaced_at_loading_is_validated_too(tmp_path: Path) -> None:
    config = ElmoConfig(projection_size=4, cell_size=5, char_filters=[[1, 3]])
    ElmoModel(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"`num_output_representations` must be a whole number of at least 1, found 0"):
        ElmoModel.from_pretrained(tmp_path, num_output_representations=0)


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

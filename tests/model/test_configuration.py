"""`ElmoConfig`: its JSON, and the fields that follow from others."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from elmo_hf import ElmoConfig

WORDS = {"token_encoder": "word_embedding", "vocab_size": 10}


@pytest.mark.parametrize(
    "fields",
    [
        {"char_activation": "tanh", "num_highway_layers": 0, "cell_clip": None, "projection_clip": 0.5},
        {"projection_size": 64, "cell_size": 64, "char_filters": ((1, 24), (2, 40)), "bidirectional": False},
        {"num_output_representations": 2, "scalar_mix_weights": [0.2, 0.3, 0.5], "scalar_mix_trainable": False},
        {"alphabet": "code_points", "vocab_size": 90, "bos_token_id": 28, "eos_token_id": 29}
        | {"num_input_words": 50, "word_embedding_size": 6, "forget_bias": 0.0},
        {"token_encoder": "word_embedding", "vocab_size": 90, "word_embedding_size": 6},
        WORDS | {"share_embedding_softmax": True, "num_softmax_words": 9},
        {"freeze_bilm": ["token_encoder", "layer_2"], "layer_mix": "linear", "task_encoder": "lstm", "use_crf": True}
        | {"word_vectors": {"num_words": 7, "size": 3, "trainable": False}},
    ],
    ids=repr,
)
def test_a_config_survives_json_unchanged(fields: dict[str, Any], tmp_path: Path) -> None:
    config = ElmoConfig(**fields)
    config.save_pretrained(tmp_path)
    assert ElmoConfig.from_pretrained(tmp_path).to_dict() == config.to_dict()
    assert AutoConfig.from_pretrained(tmp_path).to_diff_dict() == config.to_diff_dict()


def test_projections_exist_exactly_where_sizes_differ_unless_set() -> None:
    words = {"vocab_size": 90, "num_input_words": 50}
    for fields, expected in (
        ({"char_filters": [[1, 2], [2, 4]], "cell_size": 6}, (False, False)),
        ({"char_filters": [[1, 2], [2, 5]], "cell_size": 7}, (True, True)),
        ({"char_filters": [[1, 6]], "cell_size": 6, "cell_projection": True}, (False, True)),
        # Word vectors count as features.
        (words | {"char_filters": [[1, 4]], "cell_size": 6, "word_embedding_size": 2}, (False, False)),
        (words | {"char_filters": [[1, 6]], "cell_size": 6, "word_embedding_size": 3}, (True, False)),
    ):
        config = ElmoConfig(projection_size=6, **fields)
        assert (config.char_projection, config.cell_projection) == expected, fields


def test_ids_are_the_padding_then_characters_then_words() -> None:
    config = ElmoConfig(vocab_size=90, num_input_words=50, word_embedding_size=6, max_word_length=9)
    assert (config.num_characters, config.id_shape) == (39, (10,))
    assert (ElmoConfig().num_characters, ElmoConfig().id_shape) == (261, (50,))
    words = ElmoConfig(**WORDS)
    assert (words.id_shape, words.pad_token_id, words.bos_token_id, words.eos_token_id) == ((), 0, 1, 2)


def test_configs_do_not_share_their_auto_classes() -> None:
    ElmoConfig().auto_map["AutoModel"] = "another"
    assert ElmoConfig().auto_map["AutoModel"] == "modeling_elmo.ElmoModel"


def test_a_name_that_is_no_field_warns_and_survives(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "transformers"):
        assert ElmoConfig(num_labels=3, attn_implementation="eager", use_cache=True, output_attentions=False)
        assert not caplog.messages
        ElmoConfig(poling="max", corpus={"words": 9}).save_pretrained(tmp_path)
        assert "poling" in caplog.text
    config = ElmoConfig.from_pretrained(tmp_path)
    assert (config.poling, config.corpus, config.pooling) == ("max", {"words": 9}, "mean")

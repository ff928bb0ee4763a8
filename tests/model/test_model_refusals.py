"""Configs: their JSON, the fields that follow from others; and what configs and models refuse."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from elmo_hf import BiLMState, ElmoConfig, ElmoModel
from elmo_hf.folder.saved_json import one_line
from elmo_hf.model.layers_elmo import ScalarMix, pooling_of
from tests.helpers.one_direction import forward_half
from tests.helpers.task_models import make_batch, make_task_model
from tests.helpers.tiny_inputs import word_config

WORDS = {"token_encoder": "word_embedding", "vocab_size": 10}
SHARED = WORDS | {"share_embedding_softmax": True}
NAN, INFINITE = float("nan"), float("inf")
# The field that an error names, values that are not legal for it, and other fields.
FIELDS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("token_encoder", ["bytes", None, 3], {}),
    ("vocab_size", [1, None], {}),
    ("num_input_words", [-1], {}),
    ("num_input_words", [1], WORDS),
    ("num_input_words", [261, 300], {"word_embedding_size": 8}),
    ("word_embedding_size", [0, 6], {}),
    ("word_embedding_size", [None], {"num_input_words": 8}),
    ("max_word_length", [2, 6, 5.0], {}),
    ("char_embedding_size", [0, 1.5], {}),
    ("char_filters", ["12", [], [[1, 2], [3]], [[0, 2]], [[1, 2.0]], [[1, True]], [1, 2], None], {}),
    ("char_projection", ["off", False], {}),
    ("projection_size", ["8", 0], {}),
    ("cell_size", [True, 0], {}),
    ("cell_projection", [False], {}),
    ("cell_clip", [0, NAN, INFINITE, True, "3"], {}),
    ("projection_clip", [-3], {}),
    ("forget_bias", [None, INFINITE, NAN, True], {}),
    ("aligned_layers", [[3], [-1], [1, 1], 1, ["1"]], {}),
    ("aligned_layers", [[1]], {"num_softmax_words": 9}),
    ("hidden_size", [512], {}),
    ("hidden_size", [1024], {"bidirectional": False}),
    ("representation_dropout", [1.0, -0.1, "x"], {}),
    ("scalar_mix_weights", [[0.3, 0.3, 0.41], [0.5, 0.5], [-1, 1, 1], [0.0, 0.0, 0.0], ["0", 0, 1]], {}),
    ("scalar_mix_l2", [-0.1, NAN], {}),
    ("freeze_bilm", [["layer_0"], "layer_1", 1, None], {}),
    ("word_vectors", [100, [], {}, {"size": 3}, {"num_words": 26, "size": NAN, "trainable": True}], {}),
    ("word_vectors", [{"num_words": 2, "size": 3, "trainable": True}], {}),
    ("word_vectors", [{"num_words": 26, "size": 0, "trainable": True}], {}),
    ("word_vectors", [{"num_words": 26, "size": True, "trainable": True}], {}),
    ("word_vectors", [{"num_words": 26, "size": 3, "trainable": 1}], {}),
    ("id2label", [{0: "O", 2: "B-X"}], {}),
    ("num_softmax_words", [2], {}),
    ("num_softmax_samples", [0], {}),
    ("num_softmax_samples", [21], {"softmax": "sampled", "num_softmax_words": 20}),
    ("share_embedding_softmax", [1, True], {}),
    ("share_embedding_softmax", [True], SHARED | {"word_embedding_size": 6}),
    ("share_embedding_softmax", [True], SHARED | {"num_softmax_words": 10}),
    ("pad_token_id", [1], {}),
    ("bos_token_id", [-1], {}),
    ("bos_token_id", [None], {"alphabet": "code_points", "vocab_size": 90}),
]


@pytest.mark.parametrize(("name", "values", "others"), FIELDS)
def test_an_illegal_field_is_named_with_what_was_found(name: str, values: list[Any], others: dict[str, Any]) -> None:
    for value in values:
        with pytest.raises(StrictDataclassError, match=f"[`']{name}") as error:
            ElmoConfig(**others | {name: value})
        assert str(value) in str(error.value)
        assert re.search(rf"[`']{name}[`']", one_line(error.value)), "the sentence itself names the field"


def test_a_field_is_checked_when_set_and_rules_between_fields_when_saved_and_when_loaded(tmp_path: Path) -> None:
    config = ElmoConfig(projection_size=4, cell_size=5, char_filters=[[1, 3]])
    ElmoModel(config).save_pretrained(tmp_path)
    with pytest.raises(StrictDataclassError):
        config.cell_size = 0
    assert config.cell_size == 5
    config.hidden_size = 512
    with pytest.raises(StrictDataclassError):
        config.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new" / "config.json").exists()
    for fields in ({"num_output_representations": 0}, {"projection_size": 5}):
        with pytest.raises(StrictDataclassError):
            ElmoModel.from_pretrained(tmp_path, **fields)


@pytest.mark.parametrize("name", ["char_projection", "cell_projection", "bos_token_id", "eos_token_id"])
def test_a_field_that_is_set_to_none_after_making_a_config_is_named_with_none(name: str) -> None:
    config = ElmoConfig()
    setattr(config, name, None)
    with pytest.raises(StrictDataclassError, match=f"`{name}` must be") as error:
        config.validate()
    assert "found None" in str(error.value)
    assert "code_points" not in str(error.value), "the config's alphabet is bytes"


def test_a_config_of_code_points_without_ids_of_boundaries_says_which_configs_fill_them_in() -> None:
    filled_in = (
        "`bos_token_id` must be an integer; None is filled in only when a config with the alphabet 'bytes' is made"
    )
    with pytest.raises(StrictDataclassError, match=f"{filled_in}, found None"):
        ElmoConfig(alphabet="code_points")


def test_word_input_has_no_character_projection_to_refuse() -> None:
    assert ElmoConfig(**WORDS, char_projection=False).char_projection is False


IDS = torch.ones(2, 4, 11, dtype=torch.long)
BOTH = {"vocab_size": 30, "num_input_words": 9, "word_embedding_size": 4, "alphabet": "code_points"}
BOTH |= {"bos_token_id": 1, "eos_token_id": 2, "max_word_length": 4, "char_filters": [[1, 3]]}
ADDITIVE, NANS = torch.tensor([[0, -1e9]] * 4).view(2, 4), torch.full((2, 4), NAN)
ONE_ROW = BiLMState(torch.zeros(2, 1, 14), torch.zeros(2, 1, 18))


def with_id(number: int) -> torch.Tensor:
    return IDS.index_put((torch.tensor(1), torch.tensor(1), torch.tensor(2)), torch.tensor(number))


@pytest.fixture
def models(tiny_model: ElmoModel) -> SimpleNamespace:
    """A model of each kind of input, of one direction and for a task, and a mix."""
    both = ElmoModel(ElmoConfig(**BOTH, projection_size=7, cell_size=9))
    task = functools.partial(make_task_model("classification"), **make_batch("classification"))
    parts = {"words": ElmoModel(word_config()), "both": both, "one": forward_half(tiny_model), "task": task}
    return SimpleNamespace(tiny=tiny_model, mix=ScalarMix(tiny_model.config), **parts)


# What an error names, its kind, and a call that raises it.
CALLS: list[tuple[str, type[Exception], Callable[[SimpleNamespace], object]]] = [
    ("`input_ids`", ValueError, lambda models: models.tiny()),
    ("`inputs_embeds`", ValueError, lambda models: models.tiny(IDS, inputs_embeds=torch.zeros(2, 4, 7))),
    ("(batch, words, 11)", ValueError, lambda models: models.tiny(IDS.tolist())),
    ("found (2, 4)", ValueError, lambda models: models.tiny(IDS[..., 0])),
    ("`max_word_length`, 11 (in tokenizer_config.json", ValueError, lambda models: models.tiny(IDS[..., :9])),
    ("so 11 ids a word, found 9", ValueError, lambda models: models.tiny(IDS[..., :9])),
    ("so 5 ids a word, found 11", ValueError, lambda models: models.both(IDS)),
    ("integers, found numbers of torch.float32", TypeError, lambda models: models.tiny(IDS.float())),
    ("integers, found numbers of torch.bool", TypeError, lambda models: models.tiny(IDS > 0)),
    ("up to 261, found torch.int8", ValueError, lambda models: models.tiny(IDS.to(torch.int8))),
    ("from 0 to 261", ValueError, lambda models: models.tiny(with_id(-1))),
    ("found 262", ValueError, lambda models: models.tiny(with_id(262))),
    ("shape (2, 4), found (2, 3)", ValueError, lambda models: models.tiny(IDS, torch.ones(2, 3))),
    ("found -1000000000.0", ValueError, lambda models: models.tiny(IDS, ADDITIVE)),
    ("1 on words and 0 on padding", ValueError, lambda models: models.tiny(IDS, NANS)),
    ("words, 7)", ValueError, lambda models: models.tiny(inputs_embeds=torch.zeros(2, 4, 8))),
    ("shape (2, 2, 14), found None", ValueError, lambda models: models.tiny(IDS, state=(None, None))),
    ("found (2, 1, 14)", ValueError, lambda models: models.tiny(IDS, state=ONE_ROW)),
    ("(2, 1, 7)", ValueError, lambda models: models.one(IDS[:1], state=ONE_ROW)),
    ("(batch, words), found", ValueError, lambda models: models.words(IDS)),
    ("from 0 to 18, found 19", ValueError, lambda models: models.words(torch.tensor([[1, 19, 2]]))),
    ("from 0 to 20, found 21", ValueError, lambda models: models.both(torch.tensor([[[5, 6, 21, 7, 22]]]))),
    ("from 0 to 29, found 30", ValueError, lambda models: models.both(torch.tensor([[[5, 6, 8, 7, 30]]]))),
    ("`bilm_layers`", ValueError, lambda models: models.task(bilm_layers=[])),
    ("`weights`", ValueError, lambda models: models.mix.set_weights([0.5, 0.6, 0.1])),
    ("`scale`", ValueError, lambda models: models.mix.set_weights([0, 0, 1], NAN)),
]


@pytest.mark.parametrize(("words", "kind", "call"), CALLS, ids=[words for words, *_ in CALLS])
def test_what_is_no_input_is_named(
    words: str, kind: type[Exception], call: Callable[[SimpleNamespace], object], models: SimpleNamespace
) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        call(models)


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


def test_a_pooling_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="`pooling` must be one of mean, max, attention, found 'sum'"):
        pooling_of("sum")


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

"""What configs and models refuse: one line for each, with what its message names."""

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from one_direction import forward_half
from task_models import make_batch, make_task_model
from tiny_inputs import random_inputs, word_config

from elmo_hf import BiLMState, ElmoConfig, ElmoModel
from elmo_hf.model.scalar_mix import ScalarMix

WORDS = {"token_encoder": "word_embedding", "vocab_size": 10}
SHARED = WORDS | {"share_embedding_softmax": True}
NAN, INFINITE = float("nan"), float("inf")
# The field that an error names, values that are not legal for it, and other fields.
FIELDS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("token_encoder", ["bytes", None, 3], {}),
    ("vocab_size", [0, None], {}),
    ("num_input_words", [-1], {}),
    ("word_embedding_size", [0, 6], {}),
    ("word_embedding_size", [None], {"num_input_words": 8}),
    ("max_word_length", [2, 5.0], {}),
    ("char_embedding_size", [0, 1.5], {}),
    ("char_filters", ["12", [], [[1, 2], [3]], [[0, 2]], [[1, 2.0]], [[1, True]], [1, 2], None], {}),
    ("char_projection", ["off", False], {}),
    ("projection_size", ["8", 0], {}),
    ("cell_size", [True, 0], {}),
    ("cell_projection", [False], {}),
    ("cell_clip", [0, NAN, INFINITE, True, "3"], {}),
    ("projection_clip", [-3], {}),
    ("forget_bias", [None, INFINITE, NAN, True], {}),
    ("hidden_size", [512], {}),
    ("hidden_size", [1024], {"bidirectional": False}),
    ("representation_dropout", [1.0, -0.1, "x"], {}),
    ("scalar_mix_weights", [[0.3, 0.3, 0.41], [0.5, 0.5], [-1, 1, 1], [0.0, 0.0, 0.0], ["0", 0, 1]], {}),
    ("scalar_mix_l2", [-0.1, NAN], {}),
    ("freeze_bilm", [["layer_0"], "layer_1", 1, None], {}),
    ("word_vectors", [100, [], {"num_words": 26, "size": NAN, "trainable": True}], {}),
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


IDS = torch.ones(2, 4, 11, dtype=torch.long)
BOTH = {"vocab_size": 30, "num_input_words": 9, "word_embedding_size": 4, "alphabet": "code_points"}
BOTH |= {"bos_token_id": 1, "eos_token_id": 2, "max_word_length": 4, "char_filters": [[1, 3]]}


def changed(value: int, *place: int) -> torch.Tensor:
    ids = IDS.clone()
    ids[place] = value
    return ids


# Arguments of the tiny model, the kind of error and what it names.
INPUTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "nothing": ({"input_ids": None}, ValueError, "input_ids"),
    "ids and vectors": ({"inputs_embeds": torch.zeros(2, 4, 7)}, ValueError, "inputs_embeds"),
    "lists": ({"input_ids": IDS.tolist()}, ValueError, "(batch, words, 11)"),
    "word ids": ({"input_ids": IDS[..., 0]}, ValueError, "found (2, 4)"),
    "floats": ({"input_ids": IDS.float()}, TypeError, "integer"),
    "flags": ({"input_ids": IDS > 0}, TypeError, "bool"),
    "small integers": ({"input_ids": IDS.to(torch.int8)}, ValueError, "up to 261, found torch.int8"),
    "a negative id": ({"input_ids": changed(-1, 1, 1, 2)}, ValueError, "from 0 to 261"),
    "an id too large": ({"input_ids": changed(262, 1, 1, 2)}, ValueError, "found 262"),
    "another mask": ({"attention_mask": torch.ones(2, 3)}, ValueError, "shape (2, 4), found (2, 3)"),
    "an additive mask": (
        {"attention_mask": torch.tensor([[0, -1e9]] * 4).view(2, 4)},
        ValueError,
        "found -1000000000.0",
    ),
    "a mask of NaN": ({"attention_mask": torch.full((2, 4), torch.nan)}, ValueError, "1 on words and 0 on padding"),
    "vectors of another size": ({"input_ids": None, "inputs_embeds": torch.zeros(2, 4, 8)}, ValueError, "words, 7)"),
    "no state": ({"state": (None, None)}, ValueError, "shape (2, 2, 14), found None"),
    "another batch's state": (
        {"state": BiLMState(torch.zeros(2, 1, 14), torch.zeros(2, 1, 18))},
        ValueError,
        "found (2, 1, 14)",
    ),
}


@pytest.mark.parametrize(("arguments", "kind", "words"), INPUTS.values(), ids=INPUTS)
def test_what_is_no_input_is_named(
    arguments: dict[str, Any], kind: type[Exception], words: str, tiny_model: ElmoModel
) -> None:
    with pytest.raises(kind) as error:
        tiny_model(**{"input_ids": IDS} | arguments)
    assert words in str(error.value)


def test_what_is_no_input_of_other_models_is_named(tiny_model: ElmoModel) -> None:
    words, one = ElmoModel(word_config()), forward_half(tiny_model)
    both = ElmoModel(ElmoConfig(**BOTH, projection_size=7, cell_size=9))
    state = tiny_model(**random_inputs(one.config, [2])).state
    task, batch = make_task_model("classification"), make_batch("classification")
    mix = ScalarMix(tiny_model.config)
    for run, message in (
        (lambda: words(IDS), r"\(batch, words\), found"),
        (lambda: words(torch.tensor([[1, 19, 2]])), "from 0 to 18, found 19"),
        (lambda: one(**random_inputs(one.config, [2]), state=state), r"`state.hidden` .*\(2, 1, 7\)"),
        (lambda: both(torch.tensor([[[5, 6, 21, 7, 22]]])), "from 0 to 20, found 21"),
        (lambda: both(torch.tensor([[[5, 6, 8, 7, 30]]])), "from 0 to 29, found 30"),
        (lambda: task(**batch, bilm_layers=[]), "`bilm_layers`"),
        (lambda: mix.set_weights([0.5, 0.6, 0.1]), "`weights`"),
        (lambda: mix.set_weights([0, 0, 1], NAN), "`scale`"),
    ):
        with pytest.raises(ValueError, match=message):
            run()

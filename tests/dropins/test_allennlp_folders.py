"""An `Elmo` becomes a folder of ours and comes back with the same numbers."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.allennlp import Elmo, batch_to_ids, from_model, load_folder, save_folder, to_model
from elmo_hf.conversion.refusals import ConversionError
from tests.helpers import old_elmo_code as old
from tests.helpers.golden import BASE, SENTENCES


def fitted(**arguments: object) -> Elmo:
    elmo = Elmo(*BASE.files, 2, requires_grad=True, dropout=0.25, **arguments).eval()
    for index, parameter in enumerate(elmo.parameters()):
        parameter.data += 0.05 * old.waves(*parameter.shape) / (1 + index % 3)
    return elmo


@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "layer norm"])
def test_a_folder_has_the_numbers_of_an_elmo_and_gives_back_its_state_dict(layer_norm: bool, tmp_path: Path) -> None:
    elmo = fitted(do_layer_norm=layer_norm)
    save_folder(elmo, tmp_path / "folder")
    model = AutoModel.from_pretrained(tmp_path / "folder")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "folder")
    inputs = tokenizer(SENTENCES, is_split_into_words=True, padding=True, return_tensors="pt")
    outputs = model.eval()(**inputs)
    expected = elmo(batch_to_ids(SENTENCES))
    for vectors, theirs in zip(outputs.elmo_representations, expected["elmo_representations"], strict=True):
        for row, words in enumerate(SENTENCES):
            ours = vectors[row, 1 : 1 + len(words)]
            torch.testing.assert_close(ours, theirs[row, : len(words)], rtol=1e-4, atol=1e-5)
    assert model.config.representation_dropout == 0.25
    again = load_folder(tmp_path / "folder")
    assert list(again.state_dict()) == list(elmo.state_dict())
    assert all(tensor.equal(elmo.state_dict()[name]) for name, tensor in again.state_dict().items())
    assert (again._dropout.p, again.scalar_mix_1.do_layer_norm) == (0.25, layer_norm)
    trained = {name for name, parameter in again.named_parameters() if parameter.requires_grad}
    assert trained == {name for name in elmo.state_dict() if name.startswith("scalar_mix_")}
    assert all(parameter.requires_grad for parameter in load_folder(tmp_path / "folder", True).parameters())
    with pytest.raises(FileExistsError):
        save_folder(elmo, tmp_path / "folder")


def test_a_fixed_mix_stays_fixed() -> None:
    model = to_model(Elmo(*BASE.files, 1, scalar_mix_parameters=[0.0, 1.0, 2.0]))
    assert not model.config.scalar_mix_trainable
    torch.testing.assert_close(model.scalar_mixes[0].weights, torch.tensor([0.0, 1.0, 2.0]).softmax(dim=0))
    assert not from_model(model).scalar_mix_0.gamma.requires_grad


def test_a_model_without_the_forget_bias_in_its_biases_is_taken_and_not_shared(tiny_folder: Path) -> None:
    model = ElmoModel.from_pretrained(tiny_folder)
    assert model.config.forget_bias == 1
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    elmo = from_model(model)
    torch.testing.assert_close(
        elmo._elmo_lstm._elmo_lstm.backward_layer_1.state_linearity.bias.chunk(4)[1],
        model.bilm.layers[1].backward_lstm.input_linear.bias.chunk(4)[1] + 1,
    )
    for parameter in elmo.parameters():
        parameter.data.zero_()
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())


def test_each_part_trains_if_it_trains_in_the_model(tiny_folder: Path) -> None:
    model = ElmoModel.from_pretrained(tiny_folder).requires_grad_(False)
    model.bilm.layers[1].backward_lstm.input_linear.requires_grad_(True)
    model.scalar_mixes[0].logits.requires_grad_(True)
    elmo = from_model(model)
    lstm = "_elmo_lstm._elmo_lstm.backward_layer_1"
    assert {name for name, parameter in elmo.named_parameters() if parameter.requires_grad} == {
        f"{lstm}.input_linearity.weight",
        f"{lstm}.state_linearity.bias",
        *(f"scalar_mix_0.scalar_parameters.{index}" for index in range(3)),
    }
    cached = Elmo(None, None, 1, vocab_to_cache=old.WORDS, module=model)
    assert not cached._elmo_lstm._word_embedding.weight.requires_grad
    model.token_encoder.requires_grad_(True)
    cached = Elmo(None, None, 1, vocab_to_cache=old.WORDS, module=model)
    assert cached._elmo_lstm._word_embedding.weight.requires_grad
    assert all(parameter.requires_grad for parameter in cached._elmo_lstm._token_embedder.parameters())


def test_what_a_folder_has_no_place_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="_word_embedding"):
        to_model(fitted(vocab_to_cache=old.WORDS))
    cached = Elmo(*BASE.files, 1, vocab_to_cache=old.WORDS)
    assert "_word_embedding" not in " ".join(to_model(cached).state_dict())
    wrapped = fitted()
    wrapped._elmo_lstm._elmo_lstm = old.Wrapped(wrapped._elmo_lstm._elmo_lstm)
    with pytest.raises(ConversionError, match="forward_layer_0"):
        save_folder(wrapped, tmp_path / "folder")
    replaced = fitted()
    replaced._elmo_lstm = torch.nn.Identity()
    with pytest.raises(ValueError, match="Identity"):
        to_model(replaced)
    other_mix = fitted()
    other_mix.scalar_mix_0 = torch.nn.Identity()
    with pytest.raises(ValueError, match="found Identity: set it to a `ScalarMix`"):
        to_model(other_mix)
    assert list(tmp_path.iterdir()) == []


SMALL = {
    "char_filters": [[1, 2], [2, 3]],
    "char_embedding_size": 3,
    "projection_size": 4,
    "cell_size": 6,
    "num_hidden_layers": 2,
}


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"token_encoder": "word_embedding", "vocab_size": 9}, "bytes"),
        ({"char_projection": False, "projection_size": 5}, "character CNN"),
        ({"cell_projection": False, "cell_size": 4}, "LSTMs"),
        ({"bidirectional": False}, "one direction"),
        ({"aligned_layers": [1]}, "aligned"),
        ({"scalar_mix_layer_norm": "word"}, "'word'"),
        ({"layer_mix": "linear"}, "'linear'"),
    ],
)
def test_a_model_that_allennlps_parts_cannot_hold_is_refused(fields: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        from_model(ElmoModel(ElmoConfig(**(SMALL | fields))))

"""Names inside AllenNLP's ELMo that code of the time read, wrote and replaced, and its state dicts."""

import copy
import json
import re
import tarfile
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmo_hf import ElmoModel
from elmo_hf.allennlp import (
    Elmo,
    ELMoCharacterMapper,
    ElmoEmbedder,
    ElmoLstm,
    ElmoTokenEmbedder,
    ScalarMix,
    _ElmoBiLm,
    _ElmoCharacterEncoder,
    batch_to_ids,
    remove_sentence_boundaries,
)
from elmo_hf.model.scan_elmo import Kernels, using
from tests.helpers.archives import PREFIX, golden_state
from tests.helpers.checkpoints import shared
from tests.helpers.golden import BASE, SENTENCES, assert_all_close, assert_close

IDS, EXPECTED = batch_to_ids(SENTENCES), BASE.expected
MASK = EXPECTED["mask_with_boundaries"]


def test_gamma_and_scalar_parameters_are_written() -> None:
    elmo = Elmo(*BASE.files, 2, dropout=0)
    for parameter, number in zip(elmo.scalar_mix_1.scalar_parameters, EXPECTED["mix_scalars"][1], strict=True):
        parameter.data.fill_(float(number))
    elmo.scalar_mix_1.gamma.data.fill_(float(EXPECTED["mix_gammas"][1]))
    assert_close(elmo(IDS)["elmo_representations"][1], EXPECTED["mix"][1])


def test_the_list_of_a_mix_is_replaced_and_copies_and_whole_files_keep_it(tmp_path: Path) -> None:
    elmo = Elmo(*BASE.files, 1, dropout=0.5)
    numbers = [-9e10 if layer != 1 else 0.0 for layer in range(elmo._elmo_lstm.num_layers)]
    elmo.scalar_mix_0.scalar_parameters = nn.ParameterList(nn.Parameter(torch.tensor([number])) for number in numbers)
    elmo._dropout.p = 0.0
    torch.save(elmo, tmp_path / "elmo.pt")
    opened = torch.load(tmp_path / "elmo.pt", weights_only=False)  # a whole model, written by the line above
    for each in (copy.deepcopy(elmo), opened, elmo):
        assert_close(each(IDS)["elmo_representations"][0], EXPECTED["layers"][1])


def test_mixes_are_called_alone_on_layers_computed_before() -> None:
    elmo = Elmo(*BASE.files, 2, dropout=0)
    bilm = elmo._elmo_lstm(IDS)
    assert (len(elmo._scalar_mixes), elmo._elmo_lstm._elmo_lstm.hidden_size, elmo._has_cached_vocab) == (2, 8, False)
    for mix in (elmo.scalar_mix_0, elmo.scalar_mix_1):
        vectors, mask = remove_sentence_boundaries(mix(bilm["activations"], bilm["mask"]), bilm["mask"])
        assert_close(elmo._dropout(vectors), EXPECTED["mix"][0])
        np.testing.assert_array_equal(mask, EXPECTED["mask"])


def test_the_token_embedder_by_itself() -> None:
    alone = _ElmoCharacterEncoder(*BASE.files, requires_grad=False)
    assert not any(parameter.requires_grad for parameter in alone.parameters())
    for embedder in (alone, _ElmoBiLm(*BASE.files)._token_embedder):
        assert (embedder.output_dim, embedder.get_output_dim(), len(embedder._char_embedding_weights)) == (8, 8, 262)
        assert embedder._options == json.loads(Path(BASE.files[0]).read_text(encoding="utf-8"))
        assert embedder._weight_file == BASE.files[1]
        outputs = embedder(IDS)
        np.testing.assert_array_equal(outputs["mask"], MASK)
        assert_close(outputs["token_embedding"], EXPECTED["token_embedding"] * MASK[..., None])


def test_the_state_is_read_and_set() -> None:
    embedder = ElmoEmbedder(*BASE.files)
    embedder.embed_batch(SENTENCES)
    lstm = embedder.elmo_bilm._elmo_lstm
    hidden, cell = lstm._states
    assert_close(hidden, EXPECTED["call1_state_h"])
    assert_close(cell, EXPECTED["call1_state_c"], 5e-5)
    lstm.reset_states()
    lstm._states = [hidden, torch.zeros_like(cell)]
    lstm._states[1] = cell.to("cpu")
    for call in ("call2", "call3"):
        assert_all_close(embedder.embed_batch(BASE.sentences[call]), BASE.arrays(call))


def test_the_lstm_may_be_replaced_by_a_module_around_it() -> None:
    class Doubled(nn.Sequential):
        def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
            return 2 * self[0](inputs, mask)

    bilm = _ElmoBiLm(*BASE.files)
    lstm = bilm._elmo_lstm
    assert isinstance(lstm, ElmoLstm)
    assert (lstm.num_layers, lstm.input_size, lstm.cell_size) == (2, 8, 32)
    bilm._elmo_lstm = Doubled(lstm)
    expected = EXPECTED["layers_with_boundaries"] * np.array([1, 2, 2])[:, None, None, None]
    assert_close(torch.stack(bilm(IDS)["activations"]), expected)


def test_the_token_embedder_of_a_model() -> None:
    embedder = ElmoTokenEmbedder(*BASE.files, dropout=0)
    assert_close(embedder(IDS), EXPECTED["mix"][0])
    assert embedder.get_output_dim() == 16
    top = {"scalar_mix_parameters": [0.0, 0.0, 20.0], "projection_dim": 7, "requires_grad": True}
    projected = ElmoTokenEmbedder(*BASE.files, dropout=0.0, **top)
    assert (projected.get_output_dim(), projected.output_dim) == (7, 7)
    expected = projected._projection(torch.from_numpy(EXPECTED["layers"][-1]))
    assert_close(projected(IDS), expected.detach().numpy(), 1e-4)
    fixed = {name for name, parameter in projected.named_parameters() if not parameter.requires_grad}
    assert fixed == {name for name in projected.state_dict() if name.startswith("_elmo.scalar_mix_0.")}


def test_the_mapper_gives_the_ids_of_batch_to_ids_and_allennlps_marks() -> None:
    mapper, ids = ELMoCharacterMapper(), EXPECTED["char_ids"]
    found = [mapper.convert_word_to_char_ids(word) for word in SENTENCES[2]]
    np.testing.assert_array_equal(found, ids[2])
    of_sentences = (mapper.beginning_of_sentence_character, mapper.end_of_sentence_character)
    of_words = (mapper.beginning_of_word_character, mapper.end_of_word_character, mapper.padding_character)
    assert of_sentences + of_words == (256, 257, 258, 259, 260)


def test_the_mapper_is_called_on_the_class_too_and_has_the_characters_of_boundaries() -> None:
    assert ELMoCharacterMapper.convert_word_to_char_ids("bank") == batch_to_ids([["bank"]])[0, 0].tolist()
    assert ELMoCharacterMapper({"bank": 7}).convert_word_to_char_ids("bank")[1] == 8
    embedder = _ElmoCharacterEncoder(*BASE.files)
    for numbers, ids in (
        (ELMoCharacterMapper.beginning_of_sentence_characters, embedder._beginning_of_sentence_characters),
        (ELMoCharacterMapper.end_of_sentence_characters, embedder._end_of_sentence_characters),
    ):
        assert (torch.tensor(numbers) + 1).equal(ids)


class Params(UserDict):
    """AllenNLP's class for the parameters of a configuration."""

    def as_dict(self) -> dict[str, Any]:
        return dict(self.data)


@pytest.mark.parametrize("kind", [dict, Params])
def test_modules_are_made_from_parameters_which_only_allennlps_class_loses(kind: Any) -> None:
    options_file, weight_file = BASE.files
    params = kind({"options_file": options_file, "weight_file": weight_file, "dropout": 0.125})
    embedder = ElmoTokenEmbedder.from_params(params, vocab=object(), projection_dim=3)
    assert (embedder._elmo._dropout.p, embedder.get_output_dim()) == (0.125, 3)
    assert len(params) == (3 if kind is dict else 0)
    with pytest.raises(ValueError, match=r"`Elmo`.*found trainable"):
        Elmo.from_params(kind({"options_file": options_file, "trainable": True}))


def test_numbers_of_words_are_read_only_by_an_elmo_that_cached_them() -> None:
    words = ["", *sorted({word for sentence in SENTENCES for word in sentence})]
    numbers = torch.zeros(IDS.shape[:2], dtype=torch.long)
    for row, sentence in enumerate(SENTENCES):
        numbers[row, : len(sentence)] = torch.tensor([words.index(word) for word in sentence])
    cached = Elmo(*BASE.files, 1, dropout=0, vocab_to_cache=words)
    folded = numbers.unflatten(0, (2, 2))
    output = cached(folded, folded)  # in place of the characters too
    assert_close(output["elmo_representations"][0].flatten(0, 1), EXPECTED["mix"][0])
    assert output["mask"].shape == folded.shape
    elmo = Elmo(*BASE.files, 1, dropout=0)
    elmo._elmo_lstm.create_cached_cnn_embeddings(words)  # by hand, of which the Elmo knows nothing
    assert_close(elmo(IDS, torch.zeros_like(numbers))["elmo_representations"][0], EXPECTED["mix"][0])


def test_a_mix_that_is_added_to_the_list_under_the_next_name_is_used() -> None:
    elmo = Elmo(*BASE.files, 1, dropout=0)
    elmo.scalar_mix_1 = ScalarMix(3, initial_scalar_parameters=EXPECTED["mix_scalars"][1].tolist())
    elmo._scalar_mixes.append(elmo.scalar_mix_1)
    first, second = elmo(IDS)["elmo_representations"]
    assert_close(first, EXPECTED["mix"][0])
    assert_close(second, EXPECTED["mix"][1] / EXPECTED["mix_gammas"][1])


def test_a_state_dict_of_an_earlier_version_is_refused_and_the_advice_works(tiny_folder: Path) -> None:
    model = ElmoModel.from_pretrained(tiny_folder)
    former = {}
    for name, tensor in model.state_dict().items():
        for ours, theirs in (("token_encoder.", "_token_embedder.encoder."), ("bilm.", "_elmo_lstm.bilm.")):
            if name.startswith(ours):
                former[f"_elmo_lstm.{theirs}{name.removeprefix(ours)}"] = tensor / 2
    mixes = {
        "scalar_mix_0.scalar_parameters.0": torch.tensor([0.1]),
        "scalar_mix_0.scalar_parameters.1": torch.tensor([0.7]),
        "scalar_mix_0.scalar_parameters.2": torch.tensor([-0.3]),
        "scalar_mix_0.gamma": torch.tensor([1.5]),
    }
    former |= mixes
    elmo = Elmo(*BASE.files, 1, dropout=0)
    with pytest.raises(ValueError, match=r"`_elmo_lstm\._token_embedder\.encoder\..*earlier") as error:
        elmo.load_state_dict(former, strict=False)
    renamed = {}
    begins = re.findall(r"`(\S+)` to `(\S+)`", str(error.value))
    (begin_of_mixes,) = re.findall(r"then load the entries that begin with `(\S+)` into the new", str(error.value))
    for name, tensor in former.items():
        for theirs, ours in begins:
            if name.startswith(theirs):
                renamed[ours + name.removeprefix(theirs)] = tensor
    assert model.load_state_dict(renamed, strict=False).unexpected_keys == []
    taken = Elmo(None, None, 1, dropout=0, module=model)
    taken_mixes = {name: tensor for name, tensor in former.items() if name.startswith(begin_of_mixes)}
    assert taken.load_state_dict(taken_mixes, strict=False).unexpected_keys == []
    assert all(taken.state_dict()[name].equal(tensor) for name, tensor in mixes.items())
    projection = taken._elmo_lstm._token_embedder._projection.weight
    assert projection.equal(elmo._elmo_lstm._token_embedder._projection.weight / 2)


def test_hooks_see_all_words_in_their_places() -> None:
    embedder = _ElmoCharacterEncoder(*BASE.files)
    seen = []
    embedder._projection.register_forward_hook(lambda part, inputs, output: seen.append(output))
    output = embedder(IDS)["token_embedding"]
    assert_close(output, EXPECTED["token_embedding"] * MASK[..., None])
    assert seen[0].unflatten(0, MASK.shape)[torch.from_numpy(MASK)].equal(output[torch.from_numpy(MASK)])


FORMS = {
    "wider": ("char_conv_0", lambda: nn.Conv1d(4, 4, 9)),
    "padded": ("char_conv_0", lambda: nn.Conv1d(4, 4, 1, padding=1)),
    "dilated": ("char_conv_2", lambda: nn.Conv1d(4, 12, 3, dilation=4)),
    "strided": ("char_conv_2", lambda: nn.Conv1d(4, 12, 3, stride=2)),
    "without a bias": ("_projection", lambda: nn.Linear(32, 8, bias=False)),
}


@torch.no_grad()
@pytest.mark.parametrize("form", FORMS)
def test_a_convolution_or_a_projection_of_another_form_counts(form: str) -> None:
    name, make = FORMS[form]
    embedder = _ElmoCharacterEncoder(*BASE.files)
    setattr(embedder, name, make())
    words = batch_to_ids([["I"], ["abcdefghijklmnopqrstuvwxyz"]])
    with using(Kernels(large_bytes=1)):
        vectors = embedder(words)["token_embedding"]
    # A hook makes the parts run on all words and positions, and be called themselves.
    for part in embedder.modules():
        part.register_forward_hook(lambda part, inputs, output: None)
    assert_close(vectors, embedder(words)["token_embedding"])


def test_a_table_with_more_rows_reads_more_ids() -> None:
    embedder = _ElmoCharacterEncoder(*BASE.files)
    ids = IDS.clone()
    ids[0, 0, 1] = 263
    with pytest.raises(ValueError, match="261"):
        embedder(ids)
    table = embedder._char_embedding_weights
    embedder._char_embedding_weights = nn.Parameter(torch.cat([table, table[70:72]]))
    same = IDS.clone()
    same[0, 0, 1] = 71
    assert embedder(ids)["token_embedding"].equal(embedder(same)["token_embedding"])


def test_a_state_dict_has_allennlps_names_and_values() -> None:
    arrays = golden_state("base_2l_relu").items()
    state = {name.removeprefix(PREFIX): array for name, array in arrays if name.startswith(PREFIX)}
    elmo = Elmo(*BASE.files, 3, dropout=0)
    actual = elmo.state_dict()
    assert actual.keys() == state.keys()
    for name, tensor in actual.items():
        if not name.startswith("scalar_mix_"):
            assert tensor.equal(state[name]), name
    for parameter in elmo.parameters():
        nn.init.zeros_(parameter)
    elmo.load_state_dict(state)
    assert_close(torch.stack(elmo(IDS)["elmo_representations"]), EXPECTED["mix"])


def test_a_model_that_allennlp_trained_is_loaded_as_a_part_of_a_larger_one() -> None:
    folder, fixture = shared("fixtures", "allennlp_archive"), shared("fixtures", "bilm_tf_fixture")
    with tarfile.open(folder / "model.tar.gz") as archive:
        state = torch.load(archive.extractfile("weights.th"), weights_only=True)
    model = nn.ModuleDict({"elmo": Elmo(folder / "options.json", fixture / "lm_weights.hdf5", 1, dropout=0)})
    model.load_state_dict(
        {f"elmo.{name.removeprefix(PREFIX)}": array for name, array in state.items() if PREFIX in name}
    )
    sentences = json.loads((folder / "sentences.json").read_text())
    vectors = model["elmo"](batch_to_ids(sentences))["elmo_representations"][0]
    assert_close(vectors, np.load(folder / "expected.npz")["mix"])

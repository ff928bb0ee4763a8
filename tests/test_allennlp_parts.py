"""Names inside AllenNLP's ELMo that code of the time read, wrote and replaced, in scripts rewritten after such code."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp_cases import Golden, assert_close, run_legacy
from torch import Tensor, nn

from elmo_hf.allennlp import (
    ELMoCharacterMapper,
    ElmoLstm,
    _ElmoBiLm,
    batch_to_ids,
)

BASE = Golden("base_2l_relu")
FILES = {"options_file": BASE.files[0], "weight_file": BASE.files[1]}
SENTENCES = BASE.sentences["call1"]
MASK = BASE.expected["mask_with_boundaries"]


def run(script: str, **names: Any) -> dict[str, Any]:
    return run_legacy(script, **FILES, sentences=SENTENCES, **names)


MIX_AS_LEARNED = """
from allennlp.modules.elmo import Elmo, batch_to_ids

elmo = Elmo(options_file, weight_file, 2, dropout=0)
for parameter, number in zip(elmo.scalar_mix_1.scalar_parameters, numbers):
    parameter.data.fill_(number)
elmo.scalar_mix_1.gamma.data.fill_(gamma)
mixed = elmo(batch_to_ids(sentences))["elmo_representations"][1]
weights = [p.item() * elmo.scalar_mix_1.gamma.item() for p in elmo.scalar_mix_1.scalar_parameters]
"""


def test_gamma_and_scalar_parameters_are_read_and_written() -> None:
    numbers, gamma = BASE.expected["mix_scalars"][1].tolist(), float(BASE.expected["mix_gammas"][1])
    names = run(MIX_AS_LEARNED, numbers=numbers, gamma=gamma)
    assert_close(names["mixed"], BASE.expected["mix"][1])
    assert names["weights"] == pytest.approx([gamma * number for number in numbers])


TOP_LAYER_ALONE = """
from allennlp.modules.elmo import Elmo, batch_to_ids

elmo = Elmo(options_file, weight_file, num_output_representations=1, dropout=0)
elmo._modules["_elmo_lstm"]._elmo_lstm.stateful = False
elmo.scalar_mix_0.gamma.requires_grad = False
elmo.scalar_mix_0.scalar_parameters.requires_grad_(False)
for parameter in elmo.scalar_mix_0.scalar_parameters[:-1]:
    parameter.data.fill_(-9e10)
top = [elmo(batch_to_ids(sentences))["elmo_representations"][0] for _ in range(2)]
learning = [name for name, parameter in elmo.named_parameters() if parameter.requires_grad]
"""


def test_the_top_layer_alone_by_writing_the_mix() -> None:
    names = run(TOP_LAYER_ALONE)
    assert names["learning"] == []
    for top in names["top"]:
        assert_close(top, BASE.layers("call1")[-1])


ONE_LAYER_BY_A_NEW_LIST = """
import copy, torch
from torch.nn.parameter import Parameter
from allennlp.modules.elmo import Elmo, batch_to_ids

elmo = Elmo(options_file, weight_file, 1, dropout=0.5)
numbers = [Parameter(torch.FloatTensor([-9e10]), requires_grad=False) for _ in range(elmo._elmo_lstm.num_layers)]
numbers[1] = Parameter(torch.FloatTensor([0.0]), requires_grad=False)
elmo.scalar_mix_0.scalar_parameters = torch.nn.ParameterList(numbers)
elmo._dropout.p = 0.0
clone = copy.deepcopy(elmo)
torch.save(elmo, path)
opened = torch.load(path, weights_only=False)  # a whole model, written by the line above
layers = [each(batch_to_ids(sentences))["elmo_representations"][0] for each in (elmo, clone, opened)]
"""


def test_the_list_of_a_mix_is_replaced_and_copies_and_whole_files_keep_it(tmp_path: Path) -> None:
    for layer in run(ONE_LAYER_BY_A_NEW_LIST, path=tmp_path / "elmo.pt")["layers"]:
        assert_close(layer, BASE.layers("call1")[1])


PENALTY_ON_THE_MIX = """
import torch
from allennlp.modules.elmo import Elmo, batch_to_ids

elmo = Elmo(options_file, weight_file, 1, dropout=0)
mix = elmo.scalar_mix_0.scalar_parameters
with torch.no_grad():
    for number in range(3):
        mix[number].fill_(number + 1)
loss = 0.5 * (mix[0] ** 2 + mix[1] ** 2 + mix[2] ** 2)
loss.backward()
gradients = [parameter.grad.item() for parameter in mix]
parameters = []
for each in elmo._scalar_mixes:
    parameters.extend(list(each.parameters()))
optimizer = torch.optim.SGD(parameters, lr=1)
optimizer.step()
after = [parameter.item() for parameter in elmo._scalar_mixes[0].scalar_parameters]
named = dict(elmo.named_parameters())
"""


def test_the_mix_in_a_loss_and_in_an_optimizer() -> None:
    names = run(PENALTY_ON_THE_MIX)
    assert names["gradients"] == [1, 2, 3]
    assert names["after"] == [0, 0, 0]
    assert {"scalar_mix_0.gamma", "scalar_mix_0.scalar_parameters.2"} < names["named"].keys()


LAYERS_COMPUTED_BEFORE = """
from allennlp.modules.elmo import Elmo, batch_to_ids
from allennlp.nn.util import remove_sentence_boundaries

elmo = Elmo(options_file, weight_file, num_mixes, dropout=0)
bilm = elmo._elmo_lstm(batch_to_ids(sentences))
layers, mask = [layer.data for layer in bilm["activations"]], bilm["mask"].data
mixed = []
for i in range(len(elmo._scalar_mixes)):
    mix = getattr(elmo, "scalar_mix_{}".format(i))
    vectors, word_mask = remove_sentence_boundaries(mix(layers, mask), mask)
    mixed.append(elmo._dropout(vectors))
size = elmo._elmo_lstm._elmo_lstm.hidden_size
has_words = elmo._has_cached_vocab
"""


def test_mixes_are_called_alone_on_layers_computed_before() -> None:
    names = run(LAYERS_COMPUTED_BEFORE, num_mixes=2)
    assert (len(names["mixed"]), names["size"], names["has_words"]) == (2, 8, False)
    for mixed in names["mixed"]:
        assert_close(mixed, BASE.expected["mix"][0])
    np.testing.assert_array_equal(names["word_mask"], BASE.expected["mask"])


CHARACTERS_ONLY = """
from allennlp.modules.elmo import Elmo, _ElmoCharacterEncoder, batch_to_ids

ids = batch_to_ids(sentences)
elmo = Elmo(options_file, weight_file, 1)
within = elmo._elmo_lstm._token_embedder.forward(ids)
alone = _ElmoCharacterEncoder(options_file, weight_file, requires_grad=False)
outputs = alone(ids)
size = alone.get_output_dim() + elmo._elmo_lstm._token_embedder.output_dim
table = elmo._elmo_lstm._token_embedder._char_embedding_weights
"""


def test_the_token_embedder_by_itself() -> None:
    names = run(CHARACTERS_ONLY)
    assert names["size"] == 16
    assert names["table"].shape[0] == 262
    for outputs in (names["within"], names["outputs"]):
        np.testing.assert_array_equal(outputs["mask"], MASK)
        assert_close(outputs["token_embedding"], BASE.expected["token_embedding"] * MASK[..., None])
    assert not any(parameter.requires_grad for parameter in names["alone"].parameters())


COPY_OF_THE_FILES = """
import json, shutil
from allennlp.modules.elmo import Elmo, batch_to_ids

elmo = Elmo(options_file, weight_file, 1)
shutil.copy(elmo._elmo_lstm._token_embedder._weight_file, str(folder / "w.hdf5"))
with (folder / "o.json").open("w") as file:
    json.dump(elmo._elmo_lstm._token_embedder._options, file)
vectors = Elmo(folder / "o.json", folder / "w.hdf5", 1, dropout=0)(batch_to_ids(sentences))["elmo_representations"][0]
"""


def test_the_files_of_a_loaded_model_are_found_by_its_token_embedder(tmp_path: Path) -> None:
    assert_close(run(COPY_OF_THE_FILES, folder=tmp_path)["vectors"], BASE.expected["mix"][0])


LAYERS_OF_THE_BILM = """
from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids
from allennlp.nn.util import remove_sentence_boundaries

bilm = _ElmoBiLm(options_file, weight_file).eval()
output = bilm(batch_to_ids(sentences))
layers = [remove_sentence_boundaries(layer, output["mask"])[0] for layer in output["activations"]]
"""


def test_the_bilm_by_itself() -> None:
    for layer, expected in zip(run(LAYERS_OF_THE_BILM)["layers"], BASE.layers("call1"), strict=True):
        assert_close(layer, expected)


STATES_MOVED_TO_A_DEVICE = """
from allennlp.commands.elmo import ElmoEmbedder

ee = ElmoEmbedder(options_file, weight_file)
ee.embed_batch(sentences)
lstm = ee.elmo_bilm._elmo_lstm
hidden, cell = lstm._states
states = [state.to("cpu") for state in ee.elmo_bilm._elmo_lstm._states]
ee.elmo_bilm._elmo_lstm._states = states
for i in range(len(ee.elmo_bilm._elmo_lstm._states)):
    ee.elmo_bilm._elmo_lstm._states[i] = ee.elmo_bilm._elmo_lstm._states[i].to("cpu")
batches = [ee.embed_batch(batch) for batch in later]
"""


def test_the_state_is_read_and_set() -> None:
    later = [BASE.sentences[f"call{number}"] for number in (2, 3)]
    names = run(STATES_MOVED_TO_A_DEVICE, later=later)
    assert_close(names["hidden"], BASE.expected["call1_state_h"])
    assert_close(names["cell"], BASE.expected["call1_state_c"], 5e-5)
    for call, vectors in zip(("call2", "call3"), names["batches"], strict=True):
        for row, length in enumerate(BASE.lengths(call)):
            assert_close(vectors[row], BASE.layers(call)[:, row, :length])


def test_the_lstm_may_be_replaced_by_a_module_around_it() -> None:
    class Doubled(nn.Module):
        def __init__(self, lstm: nn.Module) -> None:
            super().__init__()
            self.lstm = lstm

        def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
            return 2 * self.lstm(inputs, mask)

    bilm = _ElmoBiLm(**FILES)
    assert isinstance(bilm._elmo_lstm, ElmoLstm)
    assert (bilm._elmo_lstm.num_layers, bilm._elmo_lstm.input_size, bilm._elmo_lstm.cell_size) == (2, 8, 32)
    bilm._elmo_lstm = Doubled(bilm._elmo_lstm)  # type: ignore[assignment]
    activations = bilm(batch_to_ids(SENTENCES))["activations"]
    expected = BASE.expected["layers_with_boundaries"]
    assert_close(torch.stack(activations), expected * np.array([1, 2, 2])[:, None, None, None])


CACHED_WORDS = """
import torch
from allennlp.modules.elmo import Elmo

elmo = Elmo(options_file, weight_file, 1, dropout=0)
bilm = elmo._elmo_lstm
with torch.no_grad():
    bilm.create_cached_cnn_embeddings(vocabulary)
matrix = torch.cat([bilm._bos_embedding[None], bilm._eos_embedding[None], bilm._word_embedding.weight])
del elmo._elmo_lstm._token_embedder
vectors = elmo.forward(numbers, numbers)["elmo_representations"][0]
"""


def test_words_cached_later_are_a_table_and_replace_the_token_embedder() -> None:
    row = next(number for number, words in enumerate(SENTENCES) if words)
    words = SENTENCES[row]
    vocabulary = ["", *sorted(set(words))]
    numbers = torch.tensor([[vocabulary.index(word) for word in words]])
    names = run(CACHED_WORDS, vocabulary=vocabulary, numbers=numbers)
    tokens = BASE.expected["token_embedding"][row]
    expected = [tokens[0], tokens[1 + len(words)], *(tokens[1 + words.index(word)] for word in vocabulary[1:])]
    assert_close(names["matrix"][[0, 1, *range(3, len(vocabulary) + 2)]], np.stack(expected))
    assert_close(names["vectors"][0], BASE.expected["mix"][0][row, : len(words)])


A_TOKEN_EMBEDDER_OF_A_MODEL = """
import torch
from allennlp.modules.elmo import batch_to_ids
from allennlp.modules.token_embedders import ElmoTokenEmbedder

embedder = ElmoTokenEmbedder(options_file, weight_file, dropout=0)
encoder = torch.nn.LSTM(embedder.get_output_dim(), 5, batch_first=True)
ids = batch_to_ids(sentences)
vectors = embedder(ids)
embedder._elmo._elmo_lstm._elmo_lstm.reset_states()
encoded, _ = encoder(embedder(ids))
size = 2 * embedder._elmo._elmo_lstm._token_embedder.get_output_dim()
for parameter in embedder._elmo.parameters():
    parameter.requires_grad = False
projected = ElmoTokenEmbedder(options_file=options_file, weight_file=weight_file, do_layer_norm=False, dropout=0.0,
                              requires_grad=True, projection_dim=7, scalar_mix_parameters=[0.0, 0.0, 20.0])
names = [name for name, parameter in projected.named_parameters() if parameter.requires_grad]
"""


def test_the_token_embedder_of_a_model() -> None:
    names = run(A_TOKEN_EMBEDDER_OF_A_MODEL)
    assert_close(names["vectors"], BASE.expected["mix"][0])
    assert (names["encoded"].shape[-1], names["size"]) == (5, 16)
    projected = names["projected"]
    assert (projected.get_output_dim(), projected.output_dim) == (7, 7)
    weight, bias = projected._projection.weight, projected._projection.bias
    top = torch.from_numpy(BASE.layers("call1")[-1])
    assert_close(projected(batch_to_ids(SENTENCES)), (top @ weight.T + bias).detach().numpy(), 1e-4)
    starts = ("_elmo._elmo_lstm._token_embedder.", "_elmo._elmo_lstm._elmo_lstm.", "_projection.")
    assert all(any(name.startswith(start) for name in names["names"]) for start in starts)
    assert not any("scalar_mix" in name for name in names["names"])


A_MIX_OF_OTHER_LAYERS = """
from allennlp.modules.scalar_mix import ScalarMix

mix = ScalarMix(3, do_layer_norm=do_layer_norm, initial_scalar_parameters=numbers, trainable=False)
mixed = mix(layers, mask)
"""


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_scalar_mix_by_itself(layer_norm: bool) -> None:
    layers = torch.from_numpy(BASE.expected["layers_with_boundaries"])
    numbers = BASE.expected["mix_scalars"][1].tolist()
    names = run(
        A_MIX_OF_OTHER_LAYERS,
        do_layer_norm=layer_norm,
        numbers=numbers,
        layers=list(layers),
        mask=torch.from_numpy(MASK).long(),
    )
    suffix = "_layer_norm" if layer_norm else ""
    expected = BASE.expected[f"mix{suffix}_with_boundaries"][1] / BASE.expected["mix_gammas"][1]
    assert_close(names["mixed"], expected, 5e-5)
    assert not any(parameter.requires_grad for parameter in names["mix"].parameters())


IDS_BY_HAND = """
from allennlp.data.token_indexers.elmo_indexer import ELMoCharacterMapper
import torch

longest = max(len(words) for words in sentences)
ids = torch.LongTensor(len(sentences), longest, ELMoCharacterMapper.max_word_length).fill_(0)
for row, words in enumerate(sentences):
    for place, word in enumerate(words):
        ids[row, place] = torch.LongTensor(ELMoCharacterMapper.convert_word_to_char_ids(word))
begin = ELMoCharacterMapper().beginning_of_word_character
"""


def test_ids_by_hand_equal_those_of_batch_to_ids() -> None:
    names = run(IDS_BY_HAND)
    np.testing.assert_array_equal(names["ids"], BASE.expected["char_ids"])
    assert names["begin"] + 1 == int(names["ids"][0, 0, 0])


def test_the_marks_of_the_mapper_are_allennlps() -> None:
    mapper = ELMoCharacterMapper()
    of_sentences = (mapper.beginning_of_sentence_character, mapper.end_of_sentence_character)
    of_words = (mapper.beginning_of_word_character, mapper.end_of_word_character, mapper.padding_character)
    assert of_sentences + of_words == (256, 257, 258, 259, 260)

"""Names inside AllenNLP's ELMo that code of the time read, wrote and replaced, in scripts rewritten after such code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp_cases import Golden, assert_close, run_legacy
from torch import Tensor, nn

from elmo_hf.allennlp import ELMoCharacterMapper, ElmoLstm, _ElmoBiLm, batch_to_ids

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
files = elmo._elmo_lstm._token_embedder._options, elmo._elmo_lstm._token_embedder._weight_file
"""


def test_the_token_embedder_by_itself() -> None:
    names = run(CHARACTERS_ONLY)
    assert names["size"] == 16
    assert names["table"].shape[0] == 262
    assert names["files"] == (json.loads(Path(BASE.files[0]).read_text(encoding="utf-8")), BASE.files[1])
    for outputs in (names["within"], names["outputs"]):
        np.testing.assert_array_equal(outputs["mask"], MASK)
        assert_close(outputs["token_embedding"], BASE.expected["token_embedding"] * MASK[..., None])
    assert not any(parameter.requires_grad for parameter in names["alone"].parameters())


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
from allennlp.modules.elmo import batch_to_ids
from allennlp.modules.token_embedders import ElmoTokenEmbedder

embedder = ElmoTokenEmbedder(options_file, weight_file, dropout=0)
vectors = embedder(batch_to_ids(sentences))
projected = ElmoTokenEmbedder(options_file=options_file, weight_file=weight_file, do_layer_norm=False, dropout=0.0,
                              requires_grad=True, projection_dim=7, scalar_mix_parameters=[0.0, 0.0, 20.0])
names = [name for name, parameter in projected.named_parameters() if parameter.requires_grad]
"""


def test_the_token_embedder_of_a_model() -> None:
    names = run(A_TOKEN_EMBEDDER_OF_A_MODEL)
    assert_close(names["vectors"], BASE.expected["mix"][0])
    assert names["embedder"].get_output_dim() == 16
    projected = names["projected"]
    assert (projected.get_output_dim(), projected.output_dim) == (7, 7)
    weight, bias = projected._projection.weight, projected._projection.bias
    top = torch.from_numpy(BASE.layers("call1")[-1])
    assert_close(projected(batch_to_ids(SENTENCES)), (top @ weight.T + bias).detach().numpy(), 1e-4)
    starts = ("_elmo._elmo_lstm._token_embedder.", "_elmo._elmo_lstm._elmo_lstm.", "_projection.")
    assert all(any(name.startswith(start) for name in names["names"]) for start in starts)
    assert not any("scalar_mix" in name for name in names["names"])


def test_the_mapper_gives_the_ids_of_batch_to_ids_and_allennlps_marks() -> None:
    mapper = ELMoCharacterMapper()
    for row, words in enumerate(SENTENCES):
        for place, word in enumerate(words):
            ids = mapper.convert_word_to_char_ids(word)
            np.testing.assert_array_equal(ids, BASE.expected["char_ids"][row, place])
    of_sentences = (mapper.beginning_of_sentence_character, mapper.end_of_sentence_character)
    of_words = (mapper.beginning_of_word_character, mapper.end_of_word_character, mapper.padding_character)
    assert of_sentences + of_words == (256, 257, 258, 259, 260)

"""LSTM language models of psycholinguistics (Gulordava et al. 2018): a torch state dict and its `vocab.txt`.

colorlessgreenRNNs, and other code that began as PyTorch's example `word_language_model`, has models of three parts,
which are an ELMo of one direction that reads words:

    encoder    x_t = E[w_t]                                       an `nn.Embedding`, (V, D)
    rnn        h_t = LSTM(x_t, h_{t-1}), L layers                 an `nn.LSTM`, which adds two biases
    decoder    p(w_{t+1} | w_1 .. w_t) = softmax(U h_t + b)       an `nn.Linear`, (V, H); U may be E

An ELMo has one width P for words and outputs. Here P = max(D, H), and the narrower side is filled up with zeros, which
change no product. If D > H, a projection (P, H) with ones on its diagonal widens the outputs.

`<eos>` ends a sentence, and is read before the first word of the next one. So it becomes `</S>`, and its vector is also
that of `<S>`, the last row of both tables, which has probability 0. `<unk>` becomes `<UNK>`.

Glossary: V words, D word embedding, H cell, L layers, P projection of the ELMo.
"""

from itertools import count, takewhile
from pathlib import Path

import numpy as np

from elmo_hf.model.configuration_elmo import PADDING_ID, ElmoConfig
from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer
from elmo_hf.tokenizer.word_codec import BEGIN_SENTENCE, END_SENTENCE, PADDING, UNKNOWN_WORD

from ..contract import Checkpoint, Given
from ..options import make_config
from ..refusals import listed, reading, require
from ..rules import PREPEND_ZERO_ROW, Rule, import_arrays, pad_columns
from ..sources import Source
from .torch_files import read_state_dict

VOCABULARY = "vocab.txt"
NAMES = {"<eos>": END_SENTENCE, "<unk>": UNKNOWN_WORD}
MATRICES = ("encoder.weight", "rnn.weight_hh_l0", "decoder.weight")
NEVER = -1e30  # a bias whose exp is 0; it is finite, also in bfloat16


def language_model_files(source: Source) -> dict[str, Path]:
    """The weights and the vocabulary by name; empty if one is missing. The vocabulary may be beside a single file."""
    files = source.top
    if source.is_file and (beside := source.path.with_name(VOCABULARY)).is_file():
        files = files | {VOCABULARY: beside}
    found = {name: path for name, path in files.items() if name.endswith(".pt") or name == VOCABULARY}
    return found if VOCABULARY in found and len(found) > 1 else {}


def read_language_model(source: Source, given: Given) -> Checkpoint:
    """Reads the state dict and the vocabulary.

    Raises:
        ConversionError: if the weights are those of another kind of model, or do not belong to the vocabulary.
    """
    files = language_model_files(source)
    vocabulary = files.pop(VOCABULARY)
    require(len(files) == 1, source.path, "", "a source of one file of weights", listed(sorted(files)))
    (path,) = files.values()
    arrays = read_state_dict(path)
    for name in MATRICES:
        is_matrix = name in arrays and arrays[name].ndim == 2
        require(is_matrix, path, name, "a matrix, as in a language model with an `nn.LSTM`", listed(sorted(arrays)))
    words = _words(vocabulary, len(arrays["encoder.weight"]))
    symbols = {NAMES.get(word, word): index for index, word in enumerate([*words, BEGIN_SENTENCE], 1)}
    tokenizer = ElmoTokenizer(
        "word_embedding", word_splitter=given.word_splitter or "whitespace", vocab=symbols | {PADDING: PADDING_ID}
    )
    config = config_of(arrays, symbols, path)
    with reading(path):
        _join(arrays, config, symbols[END_SENTENCE] - 1)
    tensors = import_arrays(language_model_rules(config, arrays["encoder.weight"].shape[1]), arrays, str(path))
    for layer in range(config.num_hidden_layers if config.cell_projection else 0):
        widened = np.eye(config.projection_size, config.cell_size, dtype=np.float32)
        tensors[f"elmo.bilm.layers.{layer}.forward_lstm.projection.weight"] = widened
    return Checkpoint(config, tensors, tokenizer, source.to_digest(path, vocabulary))


def config_of(arrays: dict[str, np.ndarray], symbols: dict[str, int], where: Path) -> ElmoConfig:
    """The config of the arrays' sizes; `symbols` has the ids of `<S>` and `</S>`."""
    (num_words, size), cell = arrays["encoder.weight"].shape, arrays["rnn.weight_hh_l0"].shape[1]
    return make_config(
        {},
        (),
        where,
        token_encoder="word_embedding",
        vocab_size=num_words + 2,
        projection_size=max(size, cell),
        cell_size=cell,
        num_hidden_layers=len([*takewhile(arrays.__contains__, (f"rnn.weight_hh_l{layer}" for layer in count()))]),
        bidirectional=False,
        cell_clip=None,
        projection_clip=None,
        use_skip_connections=False,
        forget_bias=0.0,
        num_softmax_words=num_words + 1,
        share_embedding_softmax=np.array_equal(arrays["encoder.weight"], arrays["decoder.weight"]),
        bos_token_id=symbols[BEGIN_SENTENCE],
        eos_token_id=symbols[END_SENTENCE],
    )


def language_model_rules(config: ElmoConfig, size: int) -> list[Rule]:
    """The table of one architecture, for the arrays of `_join`; `size` is D."""
    num_words, width, cell = config.vocab_size - 1, config.projection_size, config.cell_size
    table, widened = "elmo.token_encoder.embedding.weight", (pad_columns(cell, width),)
    rules = [
        Rule("encoder.weight", (num_words, size), (table,), (pad_columns(size, width), PREPEND_ZERO_ROW)),
        Rule("decoder.bias", (num_words,), ("softmax.bias",)),
    ]
    if not config.share_embedding_softmax:
        rules.append(Rule("decoder.weight", (num_words, cell), ("softmax.weight",), widened))
    for layer in range(config.num_hidden_layers):
        ours, read = f"elmo.bilm.layers.{layer}.forward_lstm", cell if layer else size
        inputs, states = (f"{ours}.input_linear.weight",), (f"{ours}.recurrent_linear.weight",)
        rules += [
            Rule(f"rnn.weight_ih_l{layer}", (4 * cell, read), inputs, (pad_columns(read, width),)),
            Rule(f"rnn.weight_hh_l{layer}", (4 * cell, cell), states, widened),
            Rule(f"rnn.bias_l{layer}", (4 * cell,), (f"{ours}.input_linear.bias",)),
        ]
    return rules


def _join(arrays: dict[str, np.ndarray], config: ElmoConfig, end: int) -> None:
    """Adds each layer's two biases, appends rows of `<S>` like row `end`, removes a decoder that is the encoder."""
    for layer in range(config.num_hidden_layers):
        biases = [arrays.pop(f"rnn.bias_{part}_l{layer}") for part in ("ih", "hh")]
        arrays[f"rnn.bias_l{layer}"] = np.stack(biases).sum(axis=0)
    if config.share_embedding_softmax:
        del arrays["decoder.weight"]
    for name in arrays.keys() & {"encoder.weight", "decoder.weight"}:
        arrays[name] = np.concatenate([arrays[name], arrays[name][end : end + 1]])
    arrays["decoder.bias"] = np.concatenate([arrays["decoder.bias"], [NEVER]])


def _words(path: Path, num_words: int) -> list[str]:
    """The words of a vocabulary in their order, split as colorlessgreenRNNs splits the file."""
    with reading(path):
        words = path.read_bytes().decode("utf-8").split()
    require(len(words) == num_words, path, "", f"{num_words} words, the rows of `encoder.weight`", len(words))
    there = [name for name in (*NAMES, *NAMES.values(), BEGIN_SENTENCE) if name in words]
    expected = f"a vocabulary with {', '.join(NAMES)} and without this package's own names for them"
    require(there == [*NAMES], path, "", expected, listed(there))
    return words

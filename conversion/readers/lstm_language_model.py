"""LSTM language models of psycholinguistics (Gulordava et al. 2018): a torch state dict and its `vocab.txt`.

colorlessgreenRNNs, and other code that began as PyTorch's example `word_language_model`, has models of three parts,
which are an ELMo of one direction that reads words:

    encoder    x_t = E[w_t]                                       an `nn.Embedding`, (V, D)
    rnn        h_t = LSTM(x_t, h_{t-1}), L layers                 an `nn.LSTM`, which adds two biases
    decoder    p(w_{t+1} | w_1 .. w_t) = softmax(U h_t + b)       an `nn.Linear`, (V, H)

An ELMo has one width P for words and outputs. Here P = max(D, H), and the narrower side is filled up with zeros, which
change no product. If D > H, a projection (P, H) with ones on its diagonal widens the outputs.

`<eos>` ends a sentence, and is read before the first word of the next one. So it becomes `</S>`, and its vector is also
that of `<S>`, the last row of both tables, which has probability 0. `<unk>` becomes `<UNK>`.

Glossary: V words, D word embedding, H cell, L layers, P projection of the ELMo.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from elmo_hf.model.configuration_elmo import PADDING_ID
from elmo_hf.model.tokenization_elmo import BEGIN_SENTENCE, END_SENTENCE, PADDING, UNKNOWN_WORD
from elmo_hf.public import ElmoConfig, ElmoTokenizer

from ..contract import Checkpoint, NamedFiles
from ..options import make_config
from ..refusals import ConversionError, listed, naming_file
from ..rules import PREPEND_ZERO_ROW, Rule, import_arrays, pad_columns
from ..sources import Source, by_name
from .torch_files import read_state_dict

OUR_NAMES = {"<eos>": END_SENTENCE, "<unk>": UNKNOWN_WORD}
NEVER = -1e30  # a bias whose exp is 0; it is finite, also in bfloat16


def is_language_model(source: Source) -> bool:
    """Whether there are weights beside a vocabulary."""
    return "vocab.txt" in source.top and any(name.endswith(".pt") for name in source.top)


def read_language_model(source: Source, named_files: NamedFiles, word_splitter: str | None) -> Checkpoint:
    """Reads the state dict and the vocabulary of a folder or an archive; no other files are used."""
    names = sorted(name for name in source.top if name.endswith(".pt"))
    if len(names) != 1:
        raise ConversionError(
            f"{source.path} must hold one `.pt` file of weights beside its `vocab.txt`, but holds {listed(names)}. Put "
            "the one to convert into a folder with the vocabulary."
        )
    path = source.files[names[0]]
    vocabulary = source.files["vocab.txt"]
    arrays = read_state_dict(path)
    with naming_file(path):
        num_words, size = arrays["encoder.weight"].shape
        cell = arrays["rnn.weight_hh_l0"].shape[1]
        symbols = _symbols(vocabulary, num_words)
        num_layers = _num_layers(arrays)
        _join_biases(arrays, num_layers)
        _add_row_of_begin(arrays, symbols)
    config = make_config(
        {},
        (),
        path,
        token_encoder="word_embedding",
        vocab_size=num_words + 2,
        projection_size=max(size, cell),
        cell_size=cell,
        num_hidden_layers=num_layers,
        bidirectional=False,
        cell_clip=None,
        projection_clip=None,
        use_skip_connections=False,
        forget_bias=0.0,
        num_softmax_words=num_words + 1,
        bos_token_id=symbols[BEGIN_SENTENCE],
        eos_token_id=symbols[END_SENTENCE],
    )
    tensors = import_arrays(torch_language_model_rules(config, size), arrays, str(path))
    if config.cell_projection:
        for layer in range(num_layers):
            widened = np.eye(
                config.projection_size, cell, dtype=np.float32
            )  # layers must not share one in a saved file
            tensors[f"elmo.bilm.layers.{layer}.forward_lstm.projection.weight"] = widened
    tokenizer = ElmoTokenizer("word_embedding", word_splitter=word_splitter or "whitespace", vocab=symbols)
    return Checkpoint(config, tensors, tokenizer, by_name(path, vocabulary))


def _num_layers(arrays: Mapping[str, np.ndarray]) -> int:
    """The number of layers from 0 on that an `nn.LSTM` has."""
    num_layers = 0
    while f"rnn.weight_hh_l{num_layers}" in arrays:
        num_layers += 1
    return num_layers


def _join_biases(arrays: dict[str, np.ndarray], num_layers: int) -> None:
    """Puts the sum of a layer's two biases in their place."""
    for layer in range(num_layers):
        input_bias = arrays.pop(f"rnn.bias_ih_l{layer}")
        recurrent_bias = arrays.pop(f"rnn.bias_hh_l{layer}")
        arrays[f"rnn.bias_l{layer}"] = np.stack([input_bias, recurrent_bias]).sum(axis=0)


def _add_row_of_begin(arrays: dict[str, np.ndarray], symbols: Mapping[str, int]) -> None:
    """Adds the row of `<S>` to both tables: the vector of `</S>`, and a bias that gives it probability 0."""
    end_row = symbols[END_SENTENCE] - 1
    for name in ("encoder.weight", "decoder.weight"):
        arrays[name] = np.concatenate([arrays[name], arrays[name][[end_row]]])
    arrays["decoder.bias"] = np.concatenate([arrays["decoder.bias"], [NEVER]])


def torch_language_model_rules(config: ElmoConfig, size: int) -> list[Rule]:
    """The table of one architecture, with one bias a layer and the rows of `<S>`; `size` is D."""
    num_words = config.vocab_size - 1
    width = config.projection_size
    cell = config.cell_size
    table = "elmo.token_encoder.embedding.weight"
    widened = (pad_columns(cell, width),)
    rules = [
        Rule("encoder.weight", (num_words, size), (table,), (pad_columns(size, width), PREPEND_ZERO_ROW)),
        Rule("decoder.weight", (num_words, cell), ("softmax.weight",), widened),
        Rule("decoder.bias", (num_words,), ("softmax.bias",)),
    ]
    for layer in range(config.num_hidden_layers):
        ours = f"elmo.bilm.layers.{layer}.forward_lstm"
        input_size = size if layer == 0 else cell
        padded = (pad_columns(input_size, width),)
        rules += [
            Rule(f"rnn.weight_ih_l{layer}", (4 * cell, input_size), (f"{ours}.input_linear.weight",), padded),
            Rule(f"rnn.weight_hh_l{layer}", (4 * cell, cell), (f"{ours}.recurrent_linear.weight",), widened),
            Rule(f"rnn.bias_l{layer}", (4 * cell,), (f"{ours}.input_linear.bias",)),
        ]
    return rules


def _symbols(path: Path, num_words: int) -> dict[str, int]:
    """The ids of a vocabulary's words, which are split as in colorlessgreenRNNs."""
    with naming_file(path):
        words = path.read_bytes().decode("utf-8").split()
    if len(words) != num_words:
        raise ConversionError(
            f"{path} must have {num_words} words, the rows of `encoder.weight`, but has {len(words)}. Put the "
            "vocabulary of these weights beside them."
        )
    missing = [name for name in OUR_NAMES if name not in words]
    if missing:
        raise ConversionError(
            f"{path} must have {' and '.join(OUR_NAMES)}, but lacks {listed(missing)}; such a model cannot be "
            "converted."
        )
    reserved = [name for name in (*OUR_NAMES.values(), BEGIN_SENTENCE) if name in words]
    if reserved:
        raise ConversionError(
            f"{path} has {listed(reserved)} as words, but these are this package's names for the ends of sentences and "
            "for unknown words; write them in another way in the file."
        )
    ids = {OUR_NAMES.get(word, word): word_id for word_id, word in enumerate([*words, BEGIN_SENTENCE], 1)}
    return ids | {PADDING: PADDING_ID}

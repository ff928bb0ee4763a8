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

from itertools import count, takewhile
from pathlib import Path

import numpy as np

from elmo_hf.model.configuration_elmo import PADDING_ID, ElmoConfig
from elmo_hf.model.tokenization_elmo import BEGIN_SENTENCE, END_SENTENCE, PADDING, UNKNOWN_WORD, ElmoTokenizer

from ..contract import Checkpoint, Given
from ..options import make_config
from ..refusals import listed, reading, require
from ..rules import PREPEND_ZERO_ROW, Rule, import_arrays, pad_columns
from ..sources import Source
from .torch_files import read_state_dict

NAMES = {"<eos>": END_SENTENCE, "<unk>": UNKNOWN_WORD}
NEVER = -1e30  # a bias whose exp is 0; it is finite, also in bfloat16


def is_language_model(source: Source) -> bool:
    """Whether there are weights beside a vocabulary."""
    return "vocab.txt" in source.top and any(name.endswith(".pt") for name in source.top)


def read_language_model(source: Source, given: Given) -> Checkpoint:
    """Reads the state dict and the vocabulary of a folder or an archive."""
    names = sorted(name for name in source.top if name.endswith(".pt"))
    require(len(names) == 1, source.path, "", "a source of one file of weights", listed(names))
    path, vocabulary = source.files[names[0]], source.files["vocab.txt"]
    arrays = read_state_dict(path)
    with reading(path):
        (num_words, size), cell = arrays["encoder.weight"].shape, arrays["rnn.weight_hh_l0"].shape[1]
        symbols = _symbols(vocabulary, num_words)
        num_layers = len([*takewhile(arrays.__contains__, (f"rnn.weight_hh_l{layer}" for layer in count()))])
        for layer in range(num_layers):
            biases = [arrays.pop(f"rnn.bias_{part}_l{layer}") for part in ("ih", "hh")]
            arrays[f"rnn.bias_l{layer}"] = np.stack(biases).sum(axis=0)
        for name in ("encoder.weight", "decoder.weight"):
            arrays[name] = np.concatenate([arrays[name], arrays[name][[symbols[END_SENTENCE] - 1]]])
        arrays["decoder.bias"] = np.concatenate([arrays["decoder.bias"], [NEVER]])
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
    tensors = import_arrays(language_model_rules(config, size), arrays, str(path))
    for layer in range(num_layers if config.cell_projection else 0):
        widened = np.eye(config.projection_size, cell, dtype=np.float32)
        tensors[f"elmo.bilm.layers.{layer}.forward_lstm.projection.weight"] = widened
    tokenizer = ElmoTokenizer("word_embedding", word_splitter=given.word_splitter or "whitespace", vocab=symbols)
    return Checkpoint(config, tensors, tokenizer, source.to_digest(path, vocabulary))


def language_model_rules(config: ElmoConfig, size: int) -> list[Rule]:
    """The table of one architecture, with one bias a layer and the rows of `<S>`; `size` is D."""
    num_words, width, cell = config.vocab_size - 1, config.projection_size, config.cell_size
    table, widened = "elmo.token_encoder.embedding.weight", (pad_columns(cell, width),)
    rules = [
        Rule("encoder.weight", (num_words, size), (table,), (pad_columns(size, width), PREPEND_ZERO_ROW)),
        Rule("decoder.weight", (num_words, cell), ("softmax.weight",), widened),
        Rule("decoder.bias", (num_words,), ("softmax.bias",)),
    ]
    for layer in range(config.num_hidden_layers):
        ours, read = f"elmo.bilm.layers.{layer}.forward_lstm", cell if layer else size
        inputs, states = (f"{ours}.input_linear.weight",), (f"{ours}.recurrent_linear.weight",)
        rules += [
            Rule(f"rnn.weight_ih_l{layer}", (4 * cell, read), inputs, (pad_columns(read, width),)),
            Rule(f"rnn.weight_hh_l{layer}", (4 * cell, cell), states, widened),
            Rule(f"rnn.bias_l{layer}", (4 * cell,), (f"{ours}.input_linear.bias",)),
        ]
    return rules


def _symbols(path: Path, num_words: int) -> dict[str, int]:
    """The ids of a vocabulary's words, which are split as in colorlessgreenRNNs."""
    with reading(path):
        words = path.read_bytes().decode("utf-8").split()
    require(len(words) == num_words, path, "", f"{num_words} words, the rows of `encoder.weight`", len(words))
    there = [name for name in (*NAMES, *NAMES.values(), BEGIN_SENTENCE) if name in words]
    expected = f"a vocabulary with {', '.join(NAMES)} and without this package's own names for them"
    require(there == [*NAMES], path, "", expected, listed(there))
    ids = {NAMES.get(word, word): word_id for word_id, word in enumerate([*words, BEGIN_SENTENCE], 1)}
    return ids | {PADDING: PADDING_ID}

"""TF-Hub's `google/elmo` modules under their old interface: two signatures, five named outputs.

    import tensorflow_hub as hub                         ->   from elmo_hf import tfhub as hub
    hub.Module("https://tfhub.dev/google/elmo/3")        ->   hub.Module("original")
    hub.load("https://tfhub.dev/google/elmo/3")          ->   hub.load("original")

The argument is a folder, a Hub name or a short name: a module of TF-Hub that `elmo-hf convert` converted, or the
published ELMo of the same size and training text, `original`. Tensors are torch's.

    default   a list of B sentences, split on blanks
    tokens    {"tokens": B lists of words, padded to one length, "sequence_len": the B true lengths}

    word_emb       (B, T, P)    the context-free word vectors
    lstm_outputs1  (B, T, 2P)   the first biLM layer, lstm_outputs2 the second, and so on
    elmo           (B, T, 2P)   the scalar mix of all layers; training starts from the module's, or equal weights
    default        (B, 2P)      the plain mean of `elmo` over the words of each sentence

Glossary: B batch, T words of the longest sentence or list, P projection.

A converted module computes the same as in TensorFlow. Google's keeps no state, and reads neither `<S>` nor `</S>`.
DeepPavlov's keeps each batch row's LSTM state from call to call, separately for each signature, and its `default`
leaves out the mix's scale. On padding, `word_emb` and therefore `elmo` are not zero: Google's have the vector of the
empty word, DeepPavlov's that of the padding ids.

Any other model keeps no state either, because it stands in for Google's, but it reads `<S>` and `</S>`, with which it
was trained; all its outputs are zero on padding.

`module.elmo.stateful` says whether calls keep a state, and may be changed; `module.elmo.reset_states()` forgets it.

Deliberate differences: `default` is zero for a sentence without words. `trainable=True` trains the mix's weights and
scale, as in versions 2 and 3, not the LSTMs, as in version 1.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..dropins.stateful_words import StatefulWords
from ..folder.loading import load_complete, load_tokenizer
from ..model.configuration_elmo import require
from ..model.layers_elmo import masked_mean

# What `tags` may be: a tag, several, or None.
Tags = str | Iterable[str] | None
# The inputs of each signature.
INPUTS = {"default": ["text"], "tokens": ["tokens", "sequence_len"]}
# The tag of a SavedModel.
SERVE = "serve"


class Module(nn.Module):
    """`hub.Module`; offers TensorFlow 2's `hub.load(...).signatures` too.

    Attributes:
        elmo: the model with its state.
        name: the given name, which has no effect.
        tokenizer: the model's tokenizer.
        signatures: the two signatures by name; each returns all outputs.
    """

    def __init__(self, spec: str | Path, trainable: bool = False, name: str = "module", tags: Tags = None) -> None:
        """Loads a model.

        Args:
            spec: a folder, a Hub name, or a short name, such as `"tiny"` or `"original"`.
            trainable: whether the scalar mix trains.
            name: any name.
            tags: none, or `"serve"`; an ELMo module has one graph.

        Raises:
            ValueError: if `spec` is an address, or not a complete ELMo model; if there is another tag.
        """
        super().__init__()
        self.name = name
        _check_tags(tags)
        if "://" in str(spec):
            raise ValueError(
                f"{spec} is an address of TF-Hub, from which nothing is downloaded. Convert the module's files, "
                "`elmo-hf convert MODULE elmo-module`, and give that folder, or give `original`, the published weights "
                "of the same model."
            )
        model = load_complete(spec, num_output_representations=1, representation_dropout=0.0).requires_grad_(False)
        model.mixes.requires_grad_(trainable)
        self.tokenizer = load_tokenizer(spec)
        self.elmo = StatefulWords(model, self.tokenizer)
        # For a converted module: `state` (none, shared by all calls, or one for each signature), and `scaled_mean`.
        self._module = (getattr(model.config, "task_specific_params", None) or {}).get("tfhub", {})
        self.elmo.stateful = self._module.get("state", "none") != "none"
        self.signatures: dict[str, Callable[..., dict[str, Tensor]]] = {
            "default": self._embed_sentences,
            "tokens": self._embed_tokens,
        }

    def forward(self, inputs: Any, signature: str = "default", as_dict: bool = False) -> Any:
        """Embeds a batch.

        Args:
            inputs: for `default` a list of sentences, or `{"text": sentences}`; for `tokens` its dictionary; or ids of
                `elmo.encode`.
            signature: `"default"` or `"tokens"`.
            as_dict: whether to return all outputs by name, or only the output `default`.

        Raises:
            ValueError: if a string is given instead of a list, or a list without texts; if there is no such signature,
                or the dictionary is not that of the signature.
        """
        require(signature in INPUTS, "signature", f"one of {', '.join(INPUTS)}", signature)
        if isinstance(inputs, Mapping):
            check_inputs(inputs, signature)
        embed = self._embed_ids if torch.is_tensor(inputs) else self.signatures[signature]
        outputs = embed(**inputs) if isinstance(inputs, Mapping) else embed(inputs)
        return outputs if as_dict else outputs["default"]

    def _embed_sentences(self, text: Sequence[str | bytes]) -> dict[str, Tensor]:
        """The signature `default`: only blanks separate words."""
        sentences = split_at_blanks(text)
        return self._embed_ids(self.elmo.encode(sentences, max(map(len, sentences))), "default")

    def _embed_tokens(self, tokens: Sequence[Sequence[str | bytes]], sequence_len: Sequence[int]) -> dict[str, Tensor]:
        """The signature `tokens`."""
        sentences = words_of_tokens(tokens, sequence_len)
        return self._embed_ids(self.elmo.encode(sentences, max(map(len, tokens))), "tokens")

    def _embed_ids(self, input_ids: Tensor, signature: str = "default") -> dict[str, Tensor]:
        """All outputs by name, from ids of `elmo.encode`."""
        stream = signature if self._module.get("state") == "signature" else ""
        mask, word_emb, layers, elmo = self.elmo(input_ids, stream)
        pooled = masked_mean(elmo if self._module.get("scaled_mean", True) else self._unscaled(layers), mask)
        if self._module:
            word_emb, elmo = self._fill_padding(word_emb, elmo, mask)
        lstm_outputs = {f"lstm_outputs{index}": layer for index, layer in enumerate(layers) if index > 0}
        return {"word_emb": word_emb, **lstm_outputs, "elmo": elmo, "default": pooled}

    def _unscaled(self, layers: Tensor) -> Tensor:
        """The mix of L+1 layers without its scale."""
        return torch.tensordot(self.elmo.model.scalar_mixes[0].weights, layers, dims=1)

    def _fill_padding(self, word_emb: Tensor, elmo: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Puts a token vector on padding; biLM layers are zero there, so only the lowest layer counts in the mix."""
        model = self.elmo.model
        ids = torch.tensor([self.tokenizer.convert_tokens_to_ids("")], device=word_emb.device)
        if self.tokenizer.add_boundaries:
            ids = torch.zeros_like(ids)  # padding
        vector = model.token_encoder(ids)[0]
        mix, is_word = model.scalar_mixes[0], mask.unsqueeze(-1)
        mixed = mix.scale * mix.weights[0] * torch.cat([vector, vector])
        return torch.where(is_word, word_emb, vector), torch.where(is_word, elmo, mixed)


def load(handle: str | Path, tags: Tags = None) -> Module:
    """`hub.load`: returns a frozen module; call its `signatures`. Arguments and errors are those of `Module`."""
    return Module(handle, tags=tags)


def _check_tags(tags: Tags) -> None:
    """Raises ValueError unless a graph with these tags is the one that ELMo modules and their SavedModels have."""
    names = {tags} if isinstance(tags, str) else set(tags or ())
    require(names <= {SERVE}, "tags", f"none, or {SERVE!r}, as an ELMo module has one graph", tags)


def split_at_blanks(texts: Sequence[str | bytes]) -> list[list[str]]:
    """The words of each text; only blanks separate them. Raises ValueError for one string, or if there is no text."""
    sentences = [[word for word in text.split(" ") if word] for text in _texts(texts)]
    check_number(sentences)
    return sentences


def words_of_tokens(tokens: Sequence[Sequence[str | bytes]], sequence_len: Sequence[int]) -> list[list[str]]:
    """The first `sequence_len` words of each list. Raises ValueError for a string, or if there is no list."""
    check_number(tokens)
    return [_texts(words)[:length] for words, length in zip(tokens, np.ravel(sequence_len), strict=True)]


def check_inputs(inputs: Mapping[str, Any], signature: str) -> None:
    """Raises ValueError if a dictionary does not have the inputs of a signature."""
    expected = INPUTS[signature]
    legal = f"a dictionary with {' and '.join(expected)} for the signature {signature!r}"
    require(inputs.keys() == set(expected), "inputs", legal, list(inputs))


def check_number(texts: Sequence[Any]) -> None:
    """Raises ValueError if a batch has no text."""
    require(len(texts) > 0, "inputs", "a batch of at least one text", texts)


def _texts(values: Sequence[str | bytes]) -> list[str]:
    """Strings from strings or UTF-8 bytes (TensorFlow's); raises ValueError for one string in place of a list."""
    if isinstance(values, str | bytes):
        raise ValueError(f"the signatures take lists of strings, found the string {values!r:.200}; put it into a list.")
    return [value.decode() if isinstance(value, bytes) else value for value in values]

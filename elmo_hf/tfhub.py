"""TF-Hub's `google/elmo` modules under their old interface: two signatures, five named outputs.

    import tensorflow_hub as hub                         ->   from elmo_hf import tfhub as hub
    hub.Module("https://tfhub.dev/google/elmo/3")        ->   hub.Module("elmo-original")
    hub.load("https://tfhub.dev/google/elmo/3")          ->   hub.load("elmo-original")
    hub.KerasLayer("https://tfhub.dev/google/elmo/3")    ->   hub.KerasLayer("elmo-original"), a layer of torch
    keras_elmo.ElmoEmbeddingLayer()                      ->   hub.KerasLayer("elmo-original", trainable=True)

The module is named by a folder, a Hub name or `tiny`: a module of TF-Hub that `elmo-hf convert` converted, or the
published ELMo of the same size and training text (`elmo-hf convert --model original elmo-original`). Tensors are
torch's.

    default   a list of B sentences, split on blanks
    tokens    {"tokens": B lists of words, padded to one length, "sequence_len": the B true lengths}

    word_emb       (B, T, P)    the context-free word vectors
    lstm_outputs1  (B, T, 2P)   the first biLM layer, lstm_outputs2 the second, and so on
    elmo           (B, T, 2P)   the scalar mix of all layers; training starts from the module's, or equal weights
    default        (B, 2P)      the plain mean of `elmo` over the words of each sentence

Glossary: B batch, T words of the longest sentence or list, P projection.

A converted module does as TensorFlow did. Google's keeps no state. DeepPavlov's carries each batch row's LSTM state
from call to call, for each signature by itself, and its `default` leaves the mix's scale out. On padding, `word_emb`
and so `elmo` are not zero: Google's are those of the empty word, DeepPavlov's those of padding's ids.

Any other model carries each batch row's state from call to call, and all its outputs are zero on padding.
`module.elmo.stateful = False` switches the state off, and `module.elmo.reset_states()` forgets it.

Deliberate differences: `default` is zero for a sentence without words. `trainable=True` trains the mix's weights and
scale, as in versions 2 and 3, not the LSTMs, as in version 1.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .folder.loading import load_complete, load_tokenizer
from .model.pooling import masked_mean
from .stateful import StatefulElmo

# Which calls share a state, in a converted module.
STATES = ("none", "shared", "signature")


class Module(nn.Module):
    """`hub.Module`; offers TensorFlow 2's `hub.load(...).signatures` too.

    Attributes:
        elmo: the model with its state.
        name: the name given; it changes nothing.
        tokenizer: the model's tokenizer.
        signatures: the two signatures by name; each returns all outputs.
    """

    def __init__(self, spec: str | Path, trainable: bool = False, name: str = "module", tags: Any = None) -> None:
        """Loads a model.

        Args:
            spec: a folder, a Hub name, or `"tiny"`.
            trainable: whether the scalar mix trains.
            name: any name.
            tags: ignored.

        Raises:
            ValueError: if `spec` is an address, or not a complete ELMo model.
        """
        super().__init__()
        self.name = name
        if str(spec).startswith(("http://", "https://")):
            raise ValueError(
                f"{spec} is an address of TF-Hub, from which nothing is downloaded. Convert the module's files, "
                "`elmo-hf convert MODULE elmo-module`, or the published weights of the same model, `elmo-hf convert "
                "--model original elmo-original`, and give that folder."
            )
        model = load_complete(spec, num_output_representations=1, representation_dropout=0.0)
        if model.config.layer_mix != "scalar":
            raise ValueError(f"a module of TF-Hub has a scalar mix; {spec} has `layer_mix` {model.config.layer_mix!r}.")
        model.requires_grad_(False)
        model.scalar_mixes.requires_grad_(trainable)
        self.elmo = StatefulElmo(model)
        self._module = _converted_module(model.config)
        self.elmo.stateful = self._module.get("state") != "none"
        self.tokenizer = load_tokenizer(spec)
        self.signatures: dict[str, Callable[..., dict[str, Tensor]]] = {
            "default": self._embed_sentences,
            "tokens": self._embed_tokens,
        }

    def forward(self, inputs: Any, signature: str = "default", as_dict: bool = False) -> Any:
        """Embeds a batch.

        Args:
            inputs: for `default` a list of sentences, or `{"text": them}`; for `tokens` its dictionary.
            signature: `"default"` or `"tokens"`.
            as_dict: whether to return all outputs by name, or only the output `default`.

        Raises:
            ValueError: if the signature is unknown, or the inputs do not fit it.
        """
        if signature not in self.signatures:
            raise ValueError(f"`signature` must be one of {', '.join(self.signatures)}, found {signature!r}.")
        if isinstance(inputs, Mapping) and inputs.keys() == {"text"}:
            inputs = inputs["text"]
        names = {*map(str, inputs)} if isinstance(inputs, Mapping) else set()
        if names != ({"tokens", "sequence_len"} if signature == "tokens" else set()):
            found = f"a dictionary with {', '.join(sorted(names))}" if names else type(inputs).__name__
            raise ValueError(
                "the signature `default` takes a list of sentences, and `tokens` a dictionary with `tokens` and "
                f"`sequence_len`; found {found} for `{signature}`."
            )
        outputs = self._embed_tokens(**inputs) if signature == "tokens" else self._embed_sentences(inputs)
        return outputs if as_dict else outputs["default"]

    def _embed_sentences(self, text: Sequence[str]) -> dict[str, Tensor]:
        """The signature `default`: only blanks separate words."""
        if isinstance(text, str):
            raise ValueError(f"the signature `default` takes a list of sentences, found the string {text!r}.")
        sentences = [[word for word in _text(sentence).split(" ") if word] for sentence in text]
        return self._embed(sentences, max(map(len, sentences), default=0), "default")

    def _embed_tokens(self, tokens: Sequence[Sequence[str]], sequence_len: Sequence[int]) -> dict[str, Tensor]:
        """The signature `tokens`: reads the first `sequence_len` words of each list."""
        for words in (words for words in tokens if isinstance(words, str)):
            raise ValueError(f"`tokens` must be lists of words, found the string {words!r:.200}.")
        lengths = [int(length) for length in np.ravel(sequence_len)]
        if len(lengths) != len(tokens) or not all(
            0 <= n <= len(words) for n, words in zip(lengths, tokens, strict=True)
        ):
            raise ValueError(
                f"`sequence_len` must give for each of the {len(tokens)} lists of `tokens` how many of its words "
                f"count, found {lengths}."
            )
        sentences = [list(map(_text, words[:n])) for words, n in zip(tokens, lengths, strict=True)]
        return self._embed(sentences, max(map(len, tokens), default=0), "tokens")

    def _embed(self, sentences: list[list[str]], num_positions: int, signature: str) -> dict[str, Tensor]:
        """All outputs, `num_positions` words long."""
        if not sentences:
            raise ValueError(f"the signature `{signature}` needs at least one sentence, found none.")
        model, num_boundaries = self.elmo.model, self.tokenizer.num_special_tokens_to_add()
        inputs = self.tokenizer(
            sentences,
            is_split_into_words=True,
            padding="max_length",
            padding_side="right",
            max_length=num_positions + num_boundaries,
            return_tensors="pt",
        ).to(model.device)
        if self._module.get("state") == "signature":
            self.elmo.switch_to(signature)
        output = self.elmo(**inputs)
        mask = inputs["attention_mask"][:, num_boundaries:].bool()  # (B, T), without the boundaries
        start = num_boundaries // 2

        def words(vectors: Tensor) -> Tensor:
            return vectors[:, start : start + num_positions].masked_fill(~mask.unsqueeze(-1), 0)

        layers = [words(layer) for layer in output.hidden_states]
        word_emb, elmo = words(output.token_embeddings), words(output.last_hidden_state)
        pooled = masked_mean(elmo if self._module.get("scaled_mean", True) else self._unscaled(layers), mask)
        if self._module:
            word_emb, elmo = self._fill_padding(word_emb, elmo, mask)
        lstm_outputs = {f"lstm_outputs{index}": layer for index, layer in enumerate(layers) if index > 0}
        return {"word_emb": word_emb, **lstm_outputs, "elmo": elmo, "default": pooled}

    def _unscaled(self, layers: Sequence[Tensor]) -> Tensor:
        """The mix of L+1 layers without its scale."""
        weights = self.elmo.model.scalar_mixes[0].weights
        return torch.stack([weight * layer for weight, layer in zip(weights, layers, strict=True)]).sum(dim=0)

    def _fill_padding(self, word_emb: Tensor, elmo: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Puts a token vector on padding; biLM layers are zero there, so the lowest alone is mixed."""
        model = self.elmo.model
        ids = torch.tensor([self.tokenizer.convert_tokens_to_ids("")], device=word_emb.device)
        vector = model.token_encoder(ids * (not self.tokenizer.add_boundaries))[0]
        mix, is_word = model.scalar_mixes[0], mask.unsqueeze(-1)
        mixed = mix.scale * mix.weights[0] * torch.cat([vector, vector])
        return torch.where(is_word, word_emb, vector), torch.where(is_word, elmo, mixed)


def load(handle: str | Path, tags: Any = None) -> Module:
    """`hub.load`: a frozen module, whose `signatures` take the inputs; arguments and errors are those of `Module`."""
    return Module(handle, tags=tags)


class KerasLayer(nn.Module):
    """`hub.KerasLayer` without Keras: a layer of torch that takes strings.

    Attributes:
        module: the model.
    """

    def __init__(
        self,
        handle: str | Path | Module,
        trainable: bool = False,
        signature: str = "default",
        output_key: str = "default",
        signature_outputs_as_dict: bool = False,
        **keras: Any,
    ) -> None:
        """Loads a model, or takes one that was loaded.

        Args:
            handle: as `spec` of `Module`, or a `Module`.
            trainable: whether the scalar mix trains.
            signature: `"default"` or `"tokens"`.
            output_key: the output that calls return.
            signature_outputs_as_dict: whether calls return all outputs by name.
            **keras: what Keras needs (`input_shape`, `dtype`, `name`, ...) is ignored.

        Raises:
            ValueError: as `Module`.
        """
        super().__init__()
        self.module = handle if isinstance(handle, Module) else Module(handle)
        self.module.elmo.model.scalar_mixes.requires_grad_(trainable)
        self.signature, self.output_key, self.as_dict = signature, output_key, signature_outputs_as_dict

    def forward(self, inputs: Any) -> Any:
        """Embeds a batch: sentences `(B,)` or `(B, 1)`, or the dictionary of `tokens`.

        Raises:
            ValueError: if there is no such output, or as `Module`.
        """
        if not isinstance(inputs, str | Mapping):
            inputs = np.asarray(inputs, dtype=object).reshape(-1).tolist()
        outputs = self.module(inputs, self.signature, as_dict=True)
        if not self.as_dict and self.output_key not in outputs:
            raise ValueError(f"`output_key` must be one of {', '.join(outputs)}, found {self.output_key!r}.")
        return outputs if self.as_dict else outputs[self.output_key]


def _converted_module(config: Any) -> dict[str, Any]:
    """What the config of a converted module says of it; empty for any other model.

    Raises:
        ValueError: if that is damaged.
    """
    found = (getattr(config, "task_specific_params", None) or {}).get("tfhub", {})
    is_module = isinstance(found, dict) and found.keys() == {"state", "scaled_mean"}
    if found and not (is_module and found["state"] in STATES and isinstance(found["scaled_mean"], bool)):
        raise ValueError(
            f"config.json: `tfhub` in `task_specific_params` must hold `state`, one of {', '.join(STATES)}, and "
            f"`scaled_mean`, true or false, found {found!r:.200}."
        )
    return found


def _text(value: str | bytes) -> str:
    """Decodes TensorFlow's strings, which are UTF-8 bytes; a `ValueError` if it is no string."""
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else "".join([value])
    except (TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"a text must be a string of UTF-8, found {value!r:.200}.") from error

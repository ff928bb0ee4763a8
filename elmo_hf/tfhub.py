"""TF-Hub's `google/elmo` modules under their old interface: two signatures, five named outputs.

    import tensorflow_hub as hub                         ->   from elmo_hf import tfhub as hub
    hub.Module("https://tfhub.dev/google/elmo/3")        ->   hub.Module("elmo-original")

The module is named by a folder or Hub name, for instance of the published ELMo of the same size and training text
(`elmo-hf convert --model original elmo-original`); Google's own files cannot be read. Tensors are torch's.

    default   a list of B sentences, split on blanks
    tokens    {"tokens": B lists of words, padded to one length, "sequence_len": the B true lengths}

    word_emb       (B, T, P)    the context-free word vectors
    lstm_outputs1  (B, T, 2P)   the first biLM layer, lstm_outputs2 the second, and so on
    elmo           (B, T, 2P)   the scalar mix of all layers; training starts from equal weights
    default        (B, 2P)      the plain mean of `elmo` over the words of each sentence

Glossary: B batch, T words of the longest sentence, P projection.

State: as in TF-Hub, each batch row carries its LSTM state from call to call. `module.elmo.stateful = False` switches
this off, and `module.elmo.reset_states()` forgets the state.

Deliberate differences: all outputs are zero on padding, and `default` is zero for a sentence without words.
`trainable=True` trains the mix's weights and scale, as in versions 2 and 3, not the LSTMs, as in version 1.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .loading import load_complete
from .model.pooling import masked_mean
from .stateful import StatefulElmo
from .tokenizer.tokenization_elmo import ElmoTokenizer


class Module(nn.Module):
    """`hub.Module`; offers TensorFlow 2's `hub.load(...).signatures` too.

    Attributes:
        elmo: the model with its state.
        tokenizer: the model's tokenizer.
        signatures: the two signatures by name; each returns all outputs.
    """

    def __init__(self, spec: str | Path, trainable: bool = False) -> None:
        """Loads a model.

        Args:
            spec: a folder or Hub name.
            trainable: whether the scalar mix trains.

        Raises:
            ValueError: if `spec` is an address, or not a complete ELMo model.
        """
        super().__init__()
        if str(spec).startswith(("http://", "https://")):
            raise ValueError(
                f"{spec} is an address of TF-Hub, whose files are not read. Convert the published weights of the same "
                "model, `elmo-hf convert --model original elmo-original`, and give that folder."
            )
        model = load_complete(spec, num_output_representations=1, representation_dropout=0.0)
        model.requires_grad_(False)
        model.scalar_mixes.requires_grad_(trainable)
        self.elmo = StatefulElmo(model)
        self.tokenizer = ElmoTokenizer.from_pretrained(spec)
        self.signatures: dict[str, Callable[..., dict[str, Tensor]]] = {
            "default": self._embed_sentences,
            "tokens": self._embed_tokens,
        }

    def forward(self, inputs: Any, signature: str = "default", as_dict: bool = False) -> Any:
        """Embeds a batch.

        Args:
            inputs: a list of sentences for `default`, a dictionary for `tokens`.
            signature: `"default"` or `"tokens"`.
            as_dict: whether to return all outputs by name, or only the output `default`.

        Raises:
            ValueError: if the signature is unknown, or the inputs do not fit it.
        """
        if signature not in self.signatures:
            raise ValueError(f"`signature` must be one of {', '.join(self.signatures)}, found {signature!r}.")
        if isinstance(inputs, Mapping) != (signature == "tokens"):
            raise ValueError(
                "the signature `default` takes a list of sentences, and `tokens` a dictionary with `tokens` and "
                f"`sequence_len`; found {type(inputs).__name__} for `{signature}`."
            )
        outputs = self._embed_tokens(**inputs) if signature == "tokens" else self._embed_sentences(inputs)
        return outputs if as_dict else outputs["default"]

    def _embed_sentences(self, text: Sequence[str]) -> dict[str, Tensor]:
        """The signature `default`: only blanks separate words."""
        if isinstance(text, str):
            raise ValueError(f"the signature `default` takes a list of sentences, found the string {text!r}.")
        return self._embed([[word for word in _text(sentence).split(" ") if word] for sentence in text])

    def _embed_tokens(self, tokens: Sequence[Sequence[str]], sequence_len: Sequence[int]) -> dict[str, Tensor]:
        """The signature `tokens`: reads the first `sequence_len` words of each list."""
        lengths = [int(length) for length in sequence_len]
        if len(lengths) != len(tokens) or any(n > len(words) for n, words in zip(lengths, tokens, strict=True)):
            raise ValueError(
                f"`sequence_len` must give for each of the {len(tokens)} lists of `tokens` how many of its words "
                f"count, found {lengths}."
            )
        return self._embed([list(map(_text, words[:n])) for words, n in zip(tokens, lengths, strict=True)])

    def _embed(self, sentences: list[list[str]]) -> dict[str, Tensor]:
        inputs = self.tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
        inputs = inputs.to(self.elmo.model.device)
        output = self.elmo(**inputs)
        mask = inputs["attention_mask"][:, 2:].bool()  # (B, T), without the boundaries

        def words(vectors: Tensor) -> Tensor:
            return vectors[:, 1:-1].masked_fill(~mask.unsqueeze(-1), 0)

        layers = {f"lstm_outputs{index}": words(layer) for index, layer in enumerate(output.hidden_states) if index > 0}
        elmo = words(output.last_hidden_state)
        return {
            "word_emb": words(output.token_embeddings),
            **layers,
            "elmo": elmo,
            "default": masked_mean(elmo, mask),
        }


def _text(value: str | bytes) -> str:
    """Decodes TensorFlow's strings, which are UTF-8 bytes."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)

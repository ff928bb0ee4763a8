"""The biLM in AllenNLP's parts: `_ElmoBiLm` has `_token_embedder` and `_elmo_lstm`, and calls one after the other.

    characters (B, T, C)  --_token_embedder-->  vectors (B, T+2, P)  --_elmo_lstm-->  L layers (B, T+2, 2P)

The parts are those of an `ElmoModel`, not copies. Old code hooks into a part, replaces it by its own module, or calls
only one part, so each part takes and returns the same as in AllenNLP.

`load_state_dict` also takes AllenNLP's names: `_token_embedder.char_conv_0.*` are
`_token_embedder.encoder.convolutions.0.*` here, `_elmo_lstm.forward_layer_0.*` are
`_elmo_lstm.bilm.layers.0.forward_lstm.*`.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from torch import Tensor, nn
from transformers import PreTrainedModel

from elmo_hf.conversion.contract import Checkpoint, NamedFiles
from elmo_hf.conversion.model import bilm_of
from elmo_hf.conversion.options import read_options
from elmo_hf.conversion.published import BASE_URL, PUBLISHED, fetch, name_of
from elmo_hf.conversion.readers.allennlp import read_allennlp
from elmo_hf.conversion.readers.trained_allennlp import BILM, CHARACTERS, trained_rules
from elmo_hf.conversion.refusals import ConversionError, listed
from elmo_hf.conversion.rules import import_arrays

from ..model.layers_elmo import BiLM, checked_words
from ..model.tokenization_elmo import BEGIN_SENTENCE, END_SENTENCE, CharacterCodec
from ..public import BiLMState, ElmoConfig

DEFAULT_OPTIONS_FILE = BASE_URL + PUBLISHED["original"].addresses["options"][0]
DEFAULT_WEIGHT_FILE = BASE_URL + PUBLISHED["original"].addresses["weights"][0]
# Where `_ElmoBiLm` has the parts of `ElmoModel`.
PARTS = {"token_encoder": "_token_embedder.encoder", "bilm": "_elmo_lstm.bilm"}


def find_files(options_file: str | Path | None, weight_file: str | Path | None) -> NamedFiles:
    """The two files on this machine; addresses are downloaded, once, to `$HF_HOME`."""
    files = []
    for file in (str(options_file), str(weight_file)):
        path = _place_of(file)
        if is_address(file):
            fetch([file], path)
        files.append(path)
    return NamedFiles(*files)


def is_address(file: str) -> bool:
    """Whether a file is to be downloaded."""
    return "://" in file


def _place_of(file: str) -> Path:
    """The path of a file, for an address that of its download."""
    if not is_address(file):
        return Path(file)
    return Path(constants.HF_HOME) / "elmo-hf" / hashlib.sha256(file.encode()).hexdigest()[:16] / name_of(file)


def read_files(options_file: str | Path | None, weight_file: str | Path | None) -> Checkpoint:
    """Reads the two files; what was downloaded is kept only if it could be read.

    Raises:
        ConversionError: if they are not a checkpoint.
    """
    try:
        return read_allennlp(find_files(options_file, weight_file))
    except ConversionError as error:
        addresses = [file for file in (str(options_file), str(weight_file)) if is_address(file)]
        if not addresses:
            raise
        for address in addresses:
            _place_of(address).unlink(missing_ok=True)
        raise ConversionError(f"{error} Nothing of {listed(addresses)} was kept.") from error


def add_sentence_boundaries(values: Tensor, mask: Tensor, boundaries: Any) -> tuple[Tensor, Tensor]:
    """Puts `boundaries` `(2, N)` around the words of each row: `(B, T, N)` to `(B, T+2, N)`, and the mask."""
    places = torch.arange(mask.shape[1] + 1, device=mask.device)
    behind = (nn.functional.pad(mask, (1, 0)) * places).amax(dim=1) + 1
    rows = torch.arange(len(mask), device=mask.device)
    values = nn.functional.pad(values, (0, 0, 1, 1))
    values[:, 0], values[rows, behind] = boundaries[0], boundaries[1]
    mask = nn.functional.pad(mask, (1, 1))
    mask[:, 0], mask[rows, behind] = True, True
    return values, mask


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Removes the boundaries: maps `(B, T+2, N)` to `(B, T, N)`, zero on padding, and to the words' mask `(B, T)`."""
    mask = mask.bool()
    places = torch.arange(mask.shape[1], device=mask.device)
    is_last = places == (mask * places).amax(dim=1, keepdim=True)
    is_word = (mask & ~is_last)[:, 1:-1]
    return tensor[:, 1:-1].masked_fill(~is_word.unsqueeze(-1), 0), is_word


class _ElmoCharacterEncoder(nn.Module):
    """The context-free vectors of words and boundaries.

    Attributes:
        output_dim: P.
        requires_grad: whether the encoder was made to be trained.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        requires_grad: bool = False,
        *,
        model: PreTrainedModel | None = None,
    ) -> None:
        """Loads the two files, or takes the encoder of `model`; arguments and errors are those of `Elmo`."""
        super().__init__()
        model = _load_bilm(options_file, weight_file, requires_grad) if model is None else model
        self._options: dict[str, Any] | None = None
        self._weight_file: str | None = None
        if options_file is not None:
            files = find_files(options_file, weight_file)
            self._options, self._weight_file = read_options(files.options), str(files.weights)
        self.encoder = model.token_encoder
        self._embed_ids = model.embed_ids
        self.requires_grad = requires_grad
        self.output_dim: int = model.config.projection_size
        self._config: ElmoConfig = model.config
        boundaries = CharacterCodec(model.config.max_word_length).encode([BEGIN_SENTENCE, END_SENTENCE])
        self.register_buffer("_boundary_ids", torch.from_numpy(boundaries).long(), persistent=False)

    @property
    def _char_embedding_weights(self) -> Any:
        """The table of characters; the first is padding."""
        return self.encoder.embedding.weight

    def get_output_dim(self) -> int:
        """P."""
        return self.output_dim

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Maps ids `(B, T, C)` to `token_embedding`, `(B, T+2, P)`, zero on padding, and `mask`, `(B, T+2)`.

        Raises:
            ValueError: if the ids have a wrong shape, are not integers or are out of range.
        """
        ids, mask = add_sentence_boundaries(*checked_words(inputs, None, self._config), self._boundary_ids)
        return {"mask": mask, "token_embedding": self._embed_ids(ids, mask)}


class ElmoLstm(nn.Module):
    """All layers of both directions, with the state of each batch row kept between calls.

    Attributes:
        stateful: whether calls read and update the kept state; if False, every call starts from zeros.
        input_size: P, as `hidden_size`.
        cell_size: H.
        num_layers: L.
        _states: None, or the state: `(L, rows, 2P)` and `(L, rows, 2H)`; may be set.
    """

    def __init__(self, bilm: BiLM, config: ElmoConfig) -> None:
        """Wraps the layers of a model; starts without a state."""
        super().__init__()
        self.bilm = bilm
        self.stateful = True
        self.input_size = self.hidden_size = config.projection_size
        self.cell_size: int = config.cell_size
        self.num_layers: int = config.num_hidden_layers
        self._states: Sequence[Tensor] | None = None

    def reset_states(self) -> None:
        """Forgets the state of earlier calls."""
        self._states = None

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Maps word vectors `(B, T, P)` under `mask` `(B, T)` to L layers `(L, B, T, 2P)`, zero on padding."""
        mask = mask.bool()
        kept = self._states if self.stateful else None
        before = None if kept is None else BiLMState(*(tensor.to(inputs.device) for tensor in kept))
        start = None if before is None else before.resize(len(inputs))
        layers, after = self.bilm(inputs.masked_fill(~mask.unsqueeze(-1), 0), mask, start)
        if self.stateful:
            self._states = after if before is None else before.update(after)
        return torch.stack(layers[1:])


class _ElmoBiLm(nn.Module):
    """All layers of the biLM; adds the boundaries around each sentence.

    Attributes:
        num_layers: L + 1.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
        *,
        model: PreTrainedModel | None = None,
    ) -> None:
        """Loads the two files, or wraps `model`; arguments and errors are those of `Elmo`."""
        super().__init__()
        model = _load_bilm(options_file, weight_file, requires_grad) if model is None else model
        self._requires_grad = requires_grad
        self._token_embedder = _ElmoCharacterEncoder(options_file, weight_file, requires_grad, model=model)
        self._elmo_lstm = ElmoLstm(model.bilm, model.config)
        self.num_layers: int = model.config.num_hidden_layers + 1
        self._output_dim: int = model.config.hidden_size
        self._word_embedding: nn.Embedding | None = None
        self.register_buffer("_bos_embedding", None, persistent=False)
        self.register_buffer("_eos_embedding", None, persistent=False)
        if vocab_to_cache and not any(parameter.requires_grad for parameter in self._token_embedder.parameters()):
            self.create_cached_cnn_embeddings(vocab_to_cache)
        self.register_load_state_dict_pre_hook(_rename_state)

    def get_output_dim(self) -> int:
        """2P."""
        return self._output_dim

    @torch.no_grad()
    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """Computes the vectors of words once, for calls with `word_inputs`; the first word is padding.

        Sets `_word_embedding`, whose `weight` is `(words, P)`, and `_bos_embedding` and `_eos_embedding`, `(P,)`.
        """
        embedder = self._token_embedder
        words = CharacterCodec(embedder._config.max_word_length).encode([BEGIN_SENTENCE, END_SENTENCE, *tokens])
        ids = torch.from_numpy(words).long().to(embedder._char_embedding_weights.device)
        vectors = torch.cat([embedder.encoder(block) for block in ids.split(256)])
        self._bos_embedding, self._eos_embedding = vectors[0], vectors[1]
        self._word_embedding = nn.Embedding.from_pretrained(vectors[2:].clone(), padding_idx=0)

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Runs the biLM.

        Args:
            inputs: `(B, T, C)` of `batch_to_ids`.
            word_inputs: `(B, T)` indices of cached words, 0 for padding; used only if all words are cached.

        Returns:
            `activations`, a list of L+1 tensors `(B, T+2, 2P)`, and `mask`, `(B, T+2)`, True on words and boundaries.
        """
        words = self._word_embedding
        if words is not None and word_inputs is not None and (word_inputs < words.num_embeddings).all():
            boundaries = (self._bos_embedding, self._eos_embedding)
            vectors, mask = add_sentence_boundaries(words(word_inputs), word_inputs > 0, boundaries)
        else:
            embedded = self._token_embedder(inputs)
            vectors, mask = embedded["token_embedding"], embedded["mask"].bool()
        vectors = vectors.masked_fill(~mask.unsqueeze(-1), 0)
        layers = self._elmo_lstm(vectors, mask)
        return {"activations": [torch.cat([vectors, vectors], dim=-1), *layers], "mask": mask}


def _rename_state(bilm: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Renames AllenNLP's entries of a state dict to those of `_ElmoBiLm`."""
    if prefix + CHARACTERS.removeprefix(BILM) in state:
        config = bilm._token_embedder._config
        rules = [rule for rule in trained_rules(config) if rule.source.startswith(BILM)]
        theirs = [name for name in state if name.startswith((f"{prefix}_token_embedder.", f"{prefix}_elmo_lstm."))]
        arrays = {BILM + name.removeprefix(prefix): state.pop(name).detach().cpu().numpy() for name in theirs}
        for name, array in import_arrays(rules, arrays, "the state dict").items():
            part, _, rest = name.partition(".")
            tensor = state[f"{prefix}{PARTS[part]}.{rest}"] = torch.from_numpy(array)
            if name.endswith("input_linear.bias"):
                # AllenNLP's forget gates include the bias that the model adds at run time; gates are i, f, g, o.
                tensor.unflatten(0, (4, -1))[1].sub_(config.forget_bias)


def _load_bilm(options_file: str | Path | None, weight_file: str | Path | None, requires_grad: bool) -> PreTrainedModel:
    return bilm_of(read_files(options_file, weight_file)).requires_grad_(requires_grad)

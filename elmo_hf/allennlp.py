"""AllenNLP's ELMo under its old names, for code that was written against it: change the import line.

    from allennlp.modules.elmo import Elmo, batch_to_ids     ->   from elmo_hf.allennlp import Elmo, batch_to_ids
    from allennlp.commands.elmo import ElmoEmbedder          ->   from elmo_hf.allennlp import ElmoEmbedder

Signatures, defaults, shapes and statefulness are those of AllenNLP 2.10 (`Elmo`, `batch_to_ids`) and 0.9
(`ElmoEmbedder`); masks are booleans as in 2.10. The numbers are `ElmoModel`'s, which equal AllenNLP's; new code should
use `ElmoModel` itself.

Glossary: B batch, T words of the longest sentence, C = 50 characters a word, P projection, L layers.

State: as in AllenNLP, each batch row carries its LSTM state from call to call, in evaluation too, so a sentence's
vectors depend on earlier calls. `elmo._elmo_lstm._elmo_lstm.stateful = False` switches this off, and `.reset_states()`
forgets the state.

Deliberate differences:
- There is no sorting: a batch row may have gaps between words, and a batch of empty sentences is valid.
- Vectors are zero on padding in every mode.
- If training would outdate the vocabulary cache, none is made, and words are read through their characters.
- Errors are `ValueError` and `ConversionError` in place of `ConfigurationError`.
- Parameters have our names (`scalar_mix_0.logits` and `.scale` for `scalar_parameters.k` and `gamma`). Load trained
  `.th` files with `elmo-hf convert`, not with `load_state_dict`.
"""

import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np
import torch
from huggingface_hub.constants import HF_HOME
from torch import Tensor, nn
from tqdm import tqdm
from transformers import PreTrainedModel
from transformers.utils import logging

from elmo_hf.conversion.model import bilm_of
from elmo_hf.conversion.published import BASE_URL, PUBLISHED, fetch
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles, read_allennlp

from .files import new_file
from .guarded_file import GuardedFile
from .model.configuration_elmo import ElmoConfig
from .model.scalar_mix import ScalarMix
from .stateful import StatefulElmo
from .tokenizer.tokenization_elmo import ElmoTokenizer
from .tokenizer.word_codec import BEGIN_SENTENCE, END_SENTENCE, CharacterCodec

logger = logging.get_logger(__name__)

DEFAULT_OPTIONS_FILE = BASE_URL + PUBLISHED["original"].options
DEFAULT_WEIGHT_FILE = BASE_URL + PUBLISHED["original"].weights
MAX_WORD_LENGTH = 50
OUTPUT_FORMATS = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: layers.mean(0),
}


def batch_to_ids(batch: list[list[str]]) -> Tensor:
    """Maps B lists of words to `(B, T, C)` character ids, without `<S>` and `</S>`, padded with rows of 0."""
    encoded = _tokenizer()(batch, is_split_into_words=True, add_special_tokens=False, padding=True, return_tensors="pt")
    return encoded["input_ids"]


@functools.cache
def _tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer(max_word_length=MAX_WORD_LENGTH)


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
        """Loads the two files, or wraps `model`; arguments are those of `Elmo`.

        Raises:
            ConversionError: if a file is missing or has another format.
        """
        super().__init__()
        if model is None:
            files = AllenNlpFiles(_local(options_file, "options_file"), _local(weight_file, "weight_file"))
            model = bilm_of(read_allennlp(files))
            model.requires_grad_(requires_grad)
            model.scalar_mixes.requires_grad_(False)
        self._elmo_lstm = StatefulElmo(model)
        self.num_layers: int = model.config.num_hidden_layers + 1
        codec = CharacterCodec(model.config.max_word_length)
        boundaries = torch.from_numpy(codec.encode([BEGIN_SENTENCE, END_SENTENCE])).long()
        self.register_buffer("_boundary_ids", boundaries, persistent=False)
        if vocab_to_cache and any(parameter.requires_grad for parameter in model.token_encoder.parameters()):
            logger.warning(
                "`vocab_to_cache` is not used where the character CNN trains, because training would outdate it."
            )
            vocab_to_cache = None
        cached = _word_vectors(model, boundaries, codec, vocab_to_cache) if vocab_to_cache else None
        self.register_buffer("_cached_vectors", cached, persistent=False)

    def get_output_dim(self) -> int:
        """2P."""
        return self._elmo_lstm.model.config.hidden_size

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Runs the biLM.

        Args:
            inputs: `(B, T, C)` of `batch_to_ids`.
            word_inputs: `(B, T)` indices in `vocab_to_cache`, 0 for padding; used only if all words are in it.

        Returns:
            `activations`, a list of L+1 tensors `(B, T+2, 2P)`, and `mask`, `(B, T+2)`, True on words and boundaries.
        """
        cached = self._cached_vectors
        if isinstance(cached, Tensor) and word_inputs is not None and (word_inputs < len(cached) - 2).all():
            vectors, mask = _with_boundaries(cached[2:][word_inputs], word_inputs > 0, cached[:2])
            output = self._elmo_lstm(mask, inputs_embeds=vectors)
        else:
            ids, mask = _with_boundaries(inputs, (inputs > 0).any(dim=-1), self._boundary_ids)
            output = self._elmo_lstm(mask, input_ids=ids)
        return {"activations": list(output.hidden_states), "mask": mask}


class Elmo(nn.Module):
    """Scalar mixes of a pretrained biLM's layers."""

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
    ) -> None:
        """Loads the biLM.

        Args:
            options_file: path or address of `options.json`; None with `module`.
            weight_file: path or address of `weights.hdf5`; None with `module`.
            num_output_representations: the number of mixes.
            requires_grad: whether the biLM trains; the mixes train unless `scalar_mix_parameters` are given.
            do_layer_norm: whether to normalise each layer before mixing, by one mean and variance for the whole batch.
            dropout: rate of the dropout on each mix, in training.
            vocab_to_cache: words to compute once; the first word is padding.
            keep_sentence_boundaries: whether to return the vectors of `<S>` and `</S>` too.
            scalar_mix_parameters: L+1 numbers before the softmax; they fix all mixes.
            module: replaces the files; an `ElmoModel`, or a module with `num_layers`, `get_output_dim` and a `forward`
                that returns `activations` and `mask`.

        Raises:
            ValueError: if both files and `module` are given, or the mix parameters are not L+1.
            ConversionError: if a file is missing or has another format.
        """
        super().__init__()
        bilm: Any = module
        if module is None:
            bilm = _ElmoBiLm(options_file, weight_file, requires_grad, vocab_to_cache)
        elif options_file is not None or weight_file is not None:
            raise ValueError("give either `options_file` and `weight_file`, or `module` with None for both.")
        elif isinstance(module, PreTrainedModel):
            bilm = _ElmoBiLm(None, None, vocab_to_cache=vocab_to_cache, model=module)
        self._elmo_lstm = bilm
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(dropout)
        config = ElmoConfig(
            num_hidden_layers=bilm.num_layers - 1,
            scalar_mix_layer_norm="batch" if do_layer_norm else "none",
            scalar_mix_trainable=scalar_mix_parameters is None,
        )
        self._scalar_mixes: list[ScalarMix] = []
        for index in range(num_output_representations):
            mix = ScalarMix(config)
            if scalar_mix_parameters is not None:
                _set_logits(mix, scalar_mix_parameters)
            self.add_module(f"scalar_mix_{index}", mix)
            self._scalar_mixes.append(mix)

    def get_output_dim(self) -> int:
        """2P."""
        return self._elmo_lstm.get_output_dim()

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Embeds a batch.

        Args:
            inputs: `(B, ..., T, C)` character ids of `batch_to_ids`; all axes before T count sentences.
            word_inputs: `(B, ..., T)` indices of the words in `vocab_to_cache`.

        Returns:
            `elmo_representations`, a list of tensors `(B, ..., T, 2P)`, and `mask`, `(B, ..., T)`, True on words; with
            `keep_sentence_boundaries`, T is two larger.
        """
        outer_shape = inputs.shape[:-2]
        output = self._elmo_lstm(inputs.flatten(0, -3), None if word_inputs is None else word_inputs.flatten(0, -2))
        mask = output["mask"]
        representations = [mix(output["activations"], mask) for mix in self._scalar_mixes]
        if not self._keep_sentence_boundaries:
            representations = [_without_boundaries(vectors, mask)[0] for vectors in representations]
            mask = _without_boundaries(mask.unsqueeze(-1), mask)[1]
        return {
            "elmo_representations": [self._dropout(vectors).unflatten(0, outer_shape) for vectors in representations],
            "mask": mask.unflatten(0, outer_shape),
        }


class ElmoEmbedder(nn.Module):
    """Embeds sentences as arrays of all layers."""

    def __init__(
        self,
        options_file: str | Path = DEFAULT_OPTIONS_FILE,
        weight_file: str | Path = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
    ) -> None:
        """Loads a checkpoint from paths or addresses; the default is the original model.

        Args:
            options_file: path or address of `options.json`.
            weight_file: path or address of `weights.hdf5`.
            cuda_device: index of the GPU; -1 means the CPU.

        Raises:
            ConversionError: if a file is missing or has another format.
        """
        super().__init__()
        self.elmo_bilm = _ElmoBiLm(options_file, weight_file)
        self.cuda_device = cuda_device
        if cuda_device >= 0:
            self.elmo_bilm = self.elmo_bilm.cuda(cuda_device)

    def batch_to_embeddings(self, batch: list[list[str]]) -> tuple[Tensor, Tensor]:
        """Embeds B lists of words: `(B, L+1, T, 2P)`, and the mask `(B, T)`."""
        ids = batch_to_ids(batch)
        output = self.elmo_bilm(ids.cuda(self.cuda_device) if self.cuda_device >= 0 else ids)
        layers = [_without_boundaries(layer, output["mask"]) for layer in output["activations"]]
        return torch.stack([vectors for vectors, _ in layers], dim=1), layers[0][1]

    def embed_sentence(self, sentence: list[str]) -> np.ndarray:
        """Embeds n words: `(L+1, n, 2P)`."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: list[list[str]]) -> list[np.ndarray]:
        """Embeds lists of n words: `(L+1, n, 2P)` each. A batch without words does not change the state."""
        if not any(batch):
            return [
                np.zeros((self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim()), np.float32) for _ in batch
            ]
        vectors, _ = self.batch_to_embeddings(batch)
        arrays = vectors.detach().cpu().numpy()
        return [array[:, : len(words)] for array, words in zip(arrays, batch, strict=True)]

    def embed_sentences(self, sentences: Iterable[list[str]], batch_size: int = 64) -> Iterator[np.ndarray]:
        """Embeds any number of lists of words, one batch at a time."""
        iterator = iter(sentences)
        while batch := list(itertools.islice(iterator, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: IO[str],
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embeds a file of sentences, with blanks between words, into an hdf5 file with one dataset a sentence.

        Args:
            input_file: open for reading.
            output_file_path: the new file; it replaces an older one only when it is complete.
            output_format: `"all"` layers, the `"top"` layer, or the `"average"` of all.
            batch_size: sentences in a batch.
            forget_sentences: whether to leave out `sentence_to_index`, a JSON object in one string.
            use_sentence_keys: whether to name a dataset by its sentence in place of its index.

        Raises:
            ValueError: if the format is none of the three, a line is blank, or `use_sentence_keys` meets equal lines.
        """
        if output_format not in OUTPUT_FORMATS:
            raise ValueError(f"`output_format` must be one of {', '.join(OUTPUT_FORMATS)}, found {output_format!r}.")
        sentences = [line.strip() for line in input_file]
        blank = [index for index, sentence in enumerate(sentences) if not sentence]
        if blank:
            raise ValueError(
                f"lines {blank} (from 0) are blank. Remove them, or use `elmo-hf embed`, which keeps them."
            )
        keys = sentences if use_sentence_keys else [str(index) for index in range(len(sentences))]
        if len(set(keys)) < len(keys):
            raise ValueError("two sentences are equal, so they cannot be keys; leave out `use_sentence_keys`.")
        with (
            new_file(Path(output_file_path)) as partial,
            GuardedFile(partial) as target,
            h5py.File(target, "w") as file,
        ):
            vectors = self.embed_sentences((sentence.split() for sentence in sentences), batch_size)
            for key, layers in tqdm(zip(keys, vectors, strict=True), total=len(keys), unit=" sentences"):
                file.create_dataset(key, data=OUTPUT_FORMATS[output_format](layers))
                target.check()
            if not forget_sentences and not use_sentence_keys:
                index = json.dumps(dict(zip(sentences, keys, strict=True)))
                file.create_dataset("sentence_to_index", data=[index], dtype=h5py.string_dtype())


@torch.no_grad()
def _word_vectors(model: PreTrainedModel, boundaries: Tensor, codec: CharacterCodec, words: Sequence[str]) -> Tensor:
    """Vectors `(2 + words, P)` of `<S>`, `</S>` and a vocabulary; its first word is padding."""
    ids = torch.cat([boundaries, torch.from_numpy(codec.encode(words)).long()])
    return torch.cat([model.token_encoder(block) for block in ids.split(256)])


def _with_boundaries(values: Tensor, mask: Tensor, boundaries: Any) -> tuple[Tensor, Tensor]:
    """Puts `boundaries` `(2, N)` around the words of each row: `(B, T, N)` to `(B, T+2, N)`, and the mask."""
    places = torch.arange(mask.shape[1] + 1, device=mask.device)
    behind = (nn.functional.pad(mask, (1, 0)) * places).amax(dim=1) + 1
    rows = torch.arange(len(mask), device=mask.device)
    values = nn.functional.pad(values, (0, 0, 1, 1))
    values[:, 0], values[rows, behind] = boundaries[0], boundaries[1]
    mask = nn.functional.pad(mask, (1, 1))
    mask[:, 0], mask[rows, behind] = True, True
    return values, mask


def _without_boundaries(vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Removes the boundaries: `(B, T+2, N)` to `(B, T, N)`, zero on padding, and the mask of the words."""
    places = torch.arange(mask.shape[1], device=mask.device)
    is_last = places == (mask * places).amax(dim=1, keepdim=True)
    is_word = (mask & ~is_last)[:, 1:-1]
    return vectors[:, 1:-1].masked_fill(~is_word.unsqueeze(-1), 0), is_word


@torch.no_grad()
def _set_logits(mix: ScalarMix, logits: Sequence[float]) -> None:
    if len(logits) != len(mix.logits):
        raise ValueError(f"`scalar_mix_parameters` must be {len(mix.logits)} numbers, found {list(logits)}.")
    mix.logits.copy_(torch.tensor(logits))


def _local(file: str | Path | None, name: str) -> Path:
    """Returns a path as it is; downloads an address to `$HF_HOME`."""
    if file is None:
        raise ValueError(f"`{name}` must be a path or an address, found None; it may be None with `module` only.")
    address = str(file)
    if not address.startswith(("http://", "https://")):
        return Path(file)
    folder = Path(HF_HOME) / "elmo-hf" / hashlib.sha256(address.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return fetch(address, folder)

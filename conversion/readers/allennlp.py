"""Checkpoints of AllenNLP, bilm-tf and simple_elmo: `options.json` with weights, and up to three further files.

    options.json + weights.hdf5                        a biLM, as AllenNLP and bilm-tf publish them
    options.json + weights.hdf5 + softmax.hdf5         the same with its language models' softmax
    options.json + checkpoint, model.ckpt-N.*          bilm-tf's save directory, which has the softmax
    the first + a dump of token vectors                words from a table instead of characters

Word input and language models also need the vocabulary, one word a line. A dump, written by bilm-tf's
`dump_token_embeddings`, is one array `embedding` (words, P). The dump replaces the character CNN; the softmax is
dropped, because its vocabulary differs.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import numpy as np

from elmo_hf.folder.loading import BILM_TF_SCORING
from elmo_hf.public import ElmoConfig, ElmoTokenizer

from ..contract import Checkpoint, NamedFiles
from ..hdf5 import is_hdf5, read_arrays
from ..options import read_options
from ..refusals import ConversionError, listed, naming_file
from ..rules import import_arrays
from ..sources import Source, by_name
from ..witness.reference import ReferenceElmo
from .bilm_tf import read_variables
from .hdf5_layout import (
    SOFTMAX_BIAS,
    SOFTMAX_MATRIX,
    allennlp_rules,
    config_from_options,
    has_softmax,
    language_model_rules,
)
from .tensor_bundle import find_index, shards_of


def checkpoint_files(source: Source) -> dict[str, Path]:
    """The files at the top; if they have no weights, also the files of the one folder with a TensorFlow checkpoint.

    DeepPavlov's checkpoints for fine-tuning have such a folder.
    """
    folders = {name.rpartition("/")[0] for name in source.files if name.endswith(".index")}
    if len(folders) != 1 or any(is_hdf5(name) for name in source.top):
        return source.top
    (folder,) = folders
    files = source.top
    for name, path in source.files.items():
        inner_name = name.removeprefix(f"{folder}/")
        if "/" not in inner_name:
            files[inner_name] = path
    return files


def read_allennlp_source(source: Source, named_files: NamedFiles, word_splitter: str | None) -> Checkpoint:
    """Reads a folder or an archive, with the files that the user named."""
    files_beside = {}
    if source.is_file and named_files.options is None:
        files_beside = _files_beside(source.path)
    named_files = _with_files_of_source(named_files, checkpoint_files(source) | files_beside, source.path)
    checkpoint = read_allennlp(named_files, word_splitter)
    notes = tuple(
        f"the options are {name}, beside {source.path.name}." for name in files_beside if name.endswith(".json")
    )
    return replace(checkpoint, notes=notes + checkpoint.notes)


def read_allennlp(files: NamedFiles, word_splitter: str | None = None) -> Checkpoint:
    """Reads the checkpoint of some files, with options and weights, and its language models if it has a softmax."""
    assert files.options is not None
    assert files.weights is not None
    options = read_options(files.options)
    arrays = _read_arrays(files)
    notes = []
    if files.token_embeddings is not None:
        options = {key: value for key, value in options.items() if key != "char_cnn"}
        arrays = {name: array for name, array in arrays.items() if name.startswith(("RNN_", "rnn/"))}
        arrays |= read_arrays(files.token_embeddings)
        notes.append(f"the character CNN is left out: words have the vectors of {files.token_embeddings.name}.")
    shapes = {name: array.shape for name, array in arrays.items()}
    config = config_from_options(options, shapes, files.options)
    make_rules = language_model_rules if has_softmax(arrays) else allennlp_rules
    rules = make_rules(config, arrays)
    tokenizer = _tokenizer(config, files, word_splitter)
    if has_softmax(arrays) and tokenizer.num_word_classes is not None:
        config.task_specific_params = deepcopy(BILM_TF_SCORING)
    elif has_softmax(arrays):
        notes.append(
            f"{files.weights} has a softmax over {config.num_softmax_words} words, but there is no vocabulary to say "
            "which: the folder embeds text, and cannot score it. Convert again and name the file of the words as "
            "`vocabulary`, one word a line."
        )
    make_reference = None
    if config.token_encoder == "char_cnn":
        bilm = {name: array for name, array in arrays.items() if not has_softmax([name])}
        make_reference = partial(ReferenceElmo, options, bilm)
    tensors = import_arrays(rules, arrays, str(files.weights))
    sources = by_name(*_paths_to_digest(files))
    return Checkpoint(config, tensors, tokenizer, sources, make_reference, tuple(notes))


def _read_arrays(files: NamedFiles) -> dict[str, np.ndarray]:
    """The arrays of the weights and of the softmax by their names in an hdf5 file."""
    assert files.weights is not None
    if files.weights.suffix == ".index":
        arrays = read_variables(files.weights.with_suffix(""))
    else:
        arrays = read_arrays(files.weights)
    if files.softmax is not None:
        softmax = read_arrays(files.softmax)
        if not has_softmax(softmax):
            raise ConversionError(
                f"{files.softmax} must hold a softmax, the arrays `{SOFTMAX_MATRIX}` and `{SOFTMAX_BIAS}`, but holds "
                f"{listed(sorted(softmax)) or 'no array'}."
            )
        arrays |= softmax
    return arrays


def _paths_to_digest(files: NamedFiles) -> list[Path]:
    """The files with settings and numbers, the data of a TensorFlow checkpoint among them."""
    assert files.options is not None
    assert files.weights is not None
    paths = [files.options, files.weights]
    if files.weights.suffix == ".index":
        paths += shards_of(files.weights.with_suffix(""))
    if files.softmax is not None:
        paths.append(files.softmax)
    if files.token_embeddings is not None:
        paths.append(files.token_embeddings)
    return paths


def _with_files_of_source(named_files: NamedFiles, files: Mapping[str, Path], where: Path) -> NamedFiles:
    """Adds the files of the source that the user did not name.

    They are `*options*.json`, `*.hdf5` or `*.index`, `*softmax*.hdf5` and `*vocab*.txt`; `.h5` counts as `.hdf5`.
    """
    options = named_files.options
    if options is None:
        options = _only(_preferred(files, "*options*.json", "options.json"))
    weights = named_files.weights
    if weights is None:
        weights = _only(_weights_files(files))
    softmax = named_files.softmax
    if softmax is None:
        softmax = _only(_softmax_files(files))
    vocabulary = named_files.vocabulary
    if vocabulary is None:
        vocabulary = _only(_preferred(files, "*vocab*.txt", "vocab.txt"))
    is_softmax_clear = softmax is not None or not _softmax_files(files)
    if options is None or weights is None or not is_softmax_clear:
        raise ConversionError(
            f"{where} must hold one options file (`options.json`), exactly one `.hdf5` file of weights or one "
            f"TensorFlow checkpoint, and at most one softmax, but holds {listed(sorted(files))}. Name the files to "
            "use: `options`, `weights`, `softmax`; as weights, an `.index` gives the language models with their "
            "softmax."
        )
    return replace(named_files, options=options, weights=weights, vocabulary=vocabulary, softmax=softmax)


def _weights_files(files: Mapping[str, Path]) -> list[Path]:
    """The files of weights, where TensorFlow's checkpoints count as the one that would be restored."""
    softmax_files = _softmax_files(files)
    paths = [files[name] for name in sorted(files) if is_hdf5(name) and files[name] not in softmax_files]
    if _matching(files, "*.index"):
        paths.append(find_index(files))
    return paths


def _softmax_files(files: Mapping[str, Path]) -> list[Path]:
    return [files[name] for name in sorted(files) if is_hdf5(name) and "softmax" in files[name].name]


def _tokenizer(config: ElmoConfig, files: NamedFiles, word_splitter: str | None) -> ElmoTokenizer:
    """The tokenizer, which has the vocabulary of the model's input or of its softmax, if the model has one."""
    reads_words = config.token_encoder == "word_embedding"
    predicts_words = config.num_softmax_words is not None
    if reads_words and files.vocabulary is None:
        raise ConversionError(
            f"{files.weights} needs a vocabulary, because its input is word ids, but there is none. Put `vocab.txt` "
            "beside it, or name the file as `vocabulary`, one word a line."
        )
    vocabulary = str(files.vocabulary) if files.vocabulary is not None else None
    with naming_file(files.vocabulary):
        tokenizer = ElmoTokenizer(
            config.token_encoder,
            max_word_length=config.max_word_length,
            word_splitter=word_splitter or "ptb",
            vocab_file=vocabulary if reads_words else None,
            words_file=vocabulary if predicts_words and not reads_words else None,
        )
    num_words = tokenizer.num_word_classes or 0
    num_rows = config.vocab_size - 1
    if predicts_words and vocabulary is not None:
        if num_words != config.num_softmax_words:
            raise ConversionError(
                f"{vocabulary} must have {config.num_softmax_words} words, as many as the softmax, but has "
                f"{num_words}. Name the vocabulary that the model was trained with."
            )
    elif reads_words and num_words > num_rows:
        raise ConversionError(
            f"{vocabulary} must have at most {num_rows} words, the rows of the table `embedding`, but has {num_words}. "
            "Name the vocabulary that the model was trained with."
        )
    return tokenizer


def _files_beside(weights: Path) -> dict[str, Path]:
    """The options and the vocabulary beside a file of weights; their names may contain parts of its name."""
    files = {path.name: path for path in weights.parent.iterdir() if path.suffix in (".json", ".txt")}
    options_name = f"{weights.stem.replace('weights', 'options')}.json"
    options = _preferred(files, "*options*.json", options_name if options_name in files else "options.json")
    if not options:
        return {}
    return {path.name: path for path in [*options, *_preferred(files, "*vocab*.txt", "vocab.txt")]}


def _matching(files: Mapping[str, Path], pattern: str) -> list[Path]:
    return [files[name] for name in sorted(files) if fnmatch(name, pattern)]


def _preferred(files: Mapping[str, Path], pattern: str, name: str) -> list[Path]:
    """The files that match `pattern`, or only the file with the usual name if there is one."""
    if name in files:
        return [files[name]]
    return _matching(files, pattern)


def _only(paths: Sequence[Path]) -> Path | None:
    """The path, if there is exactly one."""
    return paths[0] if len(paths) == 1 else None

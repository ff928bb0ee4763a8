"""Checkpoints of AllenNLP, bilm-tf and simple_elmo: `options.json` with weights, and up to three further files.

    options.json + weights.hdf5                        a biLM, as AllenNLP and bilm-tf publish them
    options.json + weights.hdf5 + softmax.hdf5         the same with its language models' softmax
    options.json + checkpoint, model.ckpt-N.*          bilm-tf's save directory, which has the softmax
    the first + a dump of token vectors                words from a table instead of characters

Word input and language models also need the vocabulary, one word a line. A dump, written by bilm-tf's
`dump_token_embeddings`, is one array `embedding` (words, P). The dump replaces the character CNN; the softmax is
dropped, because its vocabulary differs.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from elmo_hf.folder.loading import BILM_TF_SCORING
from elmo_hf.model.configuration_elmo import ElmoConfig
from elmo_hf.model.tokenization_elmo import ElmoTokenizer

from ..contract import Checkpoint, Given
from ..hdf5 import is_hdf5, read_hdf5
from ..options import read_options
from ..refusals import listed, reading, require
from ..rules import import_arrays
from ..sources import Source
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
    if len(folders) != 1 or any(map(is_hdf5, source.top)):
        return source.top
    inside = {name.removeprefix(f"{folder}/"): path for folder in folders for name, path in source.files.items()}
    return source.top | {name: path for name, path in inside.items() if "/" not in name}


def read_allennlp_source(source: Source, given: Given) -> Checkpoint:
    """Reads a folder or an archive, with the files that the user gave."""
    files = checkpoint_files(source)
    beside = _beside(source.path) if source.is_file and given.options is None else {}
    checkpoint = read_allennlp(_find(files | beside, source.path, given))
    notes = tuple(f"the options are {name}, beside {source.path.name}." for name in beside if name.endswith(".json"))
    sources = source.to_digest(*checkpoint.sources.values())
    return replace(checkpoint, sources=sources, notes=notes + checkpoint.notes)


def read_allennlp(files: Given) -> Checkpoint:
    """Reads the checkpoint of some files, with options and weights, and its language models if it has a softmax."""
    assert files.options is not None
    assert files.weights is not None
    options = read_options(files.options)
    paths = [files.options, files.weights]
    if files.weights.suffix == ".index":
        arrays = read_variables(files.weights.with_suffix(""))
        paths += shards_of(files.weights.with_suffix(""))
    else:
        arrays = read_hdf5(files.weights)
    notes = []
    if files.softmax is not None:
        softmax = read_hdf5(files.softmax)
        expected = f"a file of `{SOFTMAX_MATRIX}` and `{SOFTMAX_BIAS}`"
        require(has_softmax(softmax), files.softmax, "", expected, listed(sorted(softmax)))
        arrays |= softmax
    if files.token_embeddings is not None:
        options = {key: value for key, value in options.items() if key != "char_cnn"}
        arrays = {name: array for name, array in arrays.items() if name.startswith(("RNN_", "rnn/"))}
        arrays |= read_hdf5(files.token_embeddings)
        notes.append(f"the character CNN is left out: words have the vectors of {files.token_embeddings.name}.")
    config = config_from_options(options, {name: array.shape for name, array in arrays.items()}, files.options)
    rules = language_model_rules(config, arrays) if has_softmax(arrays) else allennlp_rules(config, arrays)
    tokenizer = _tokenizer(config, files)
    if has_softmax(arrays) and tokenizer.num_word_classes is not None:
        config.task_specific_params = deepcopy(BILM_TF_SCORING)
    elif has_softmax(arrays):
        notes.append(
            f"{files.weights} has a softmax over {config.num_softmax_words} words, but there is no vocabulary to say "
            "which: the folder embeds text, and cannot score it. Convert again with `--vocabulary FILE` (one word a "
            "line)."
        )
    bilm = {name: array for name, array in arrays.items() if not has_softmax([name])}
    paths += [path for path in (files.softmax, files.token_embeddings) if path is not None]
    return Checkpoint(
        config,
        import_arrays(rules, arrays, str(files.weights)),
        tokenizer,
        {path.name: path for path in paths},
        partial(ReferenceElmo, options, bilm) if config.token_encoder == "char_cnn" else None,
        tuple(notes),
    )


def _find(files: Mapping[str, Path], where: Path, given: Given) -> Given:
    """Finds the files that were not given: `*options*.json`, `*.hdf5`, `*softmax*.hdf5`, `*vocab*.txt`, `*.index`.

    `.h5` counts as `.hdf5`.
    """
    options = [given.options] if given.options is not None else _preferred(files, "*options*.json", "options.json")
    arrays = [files[name] for name in sorted(files) if is_hdf5(name)]
    softmax = [path for path in arrays if "softmax" in path.name]
    weights = [path for path in arrays if path not in softmax]
    vocabulary = _preferred(files, "*vocab*.txt", "vocab.txt")
    if _named(files, "*.index"):
        weights += [find_index(files)]
    is_one = (len(options), len(weights), len(softmax) > 1) == (1, 1, False)
    expected = "a source of `options.json` and exactly one `.hdf5` file or TensorFlow checkpoint"
    advice = (
        "Name the files with `--options FILE --weights FILE`, where an `.index` gives the language models with their "
        "softmax."
    )
    require(is_one, where, "", expected, listed(sorted(files)), advice)
    return replace(
        given,
        options=options[0],
        weights=weights[0],
        vocabulary=given.vocabulary or (vocabulary[0] if len(vocabulary) == 1 else None),
        softmax=given.softmax or (softmax[0] if softmax else None),
    )


def _tokenizer(config: ElmoConfig, files: Given) -> ElmoTokenizer:
    reads_words = config.token_encoder == "word_embedding"
    advice = "Put `vocab.txt` beside it, or give `--vocabulary FILE` (one word a line)."
    has_words = files.vocabulary is not None or not reads_words
    require(has_words, files.weights, "", "given with the vocabulary of its word ids", "no vocabulary", advice)
    names_words = reads_words or config.num_softmax_words is not None
    path = str(files.vocabulary) if names_words and files.vocabulary is not None else None
    with reading(files.vocabulary):
        tokenizer = ElmoTokenizer(
            config.token_encoder,
            max_word_length=config.max_word_length,
            word_splitter=files.word_splitter or "ptb",
            vocab_file=path if reads_words else None,
            words_file=None if reads_words else path,
        )
    num_words, num_predicted = tokenizer.num_word_classes or 0, config.num_softmax_words
    num_rows = config.vocab_size - 1
    if num_predicted is not None and path is not None:
        require(num_words == num_predicted, path, "", f"{num_predicted} words, as many as the softmax has", num_words)
    elif reads_words:
        require(num_words <= num_rows, path, "", f"at most {num_rows} words, the rows of `embedding`", num_words)
    return tokenizer


def _beside(weights: Path) -> dict[str, Path]:
    """The options and the vocabulary beside a file of weights; their names may contain parts of its name."""
    files = {path.name: path for path in weights.parent.iterdir() if path.suffix in (".json", ".txt")}
    own = f"{weights.stem.replace('weights', 'options')}.json"
    options = [files[own]] if own in files else _preferred(files, "*options*.json", "options.json")
    return {path.name: path for path in [*options, *_preferred(files, "*vocab*.txt", "vocab.txt")] if options}


def _named(files: Mapping[str, Path], pattern: str) -> list[Path]:
    return [files[name] for name in sorted(files) if fnmatch(name, pattern)]


def _preferred(files: Mapping[str, Path], pattern: str, name: str) -> list[Path]:
    """The files that match `pattern`, or only the file with the usual name if there is one."""
    return [files[name]] if name in files else _named(files, pattern)

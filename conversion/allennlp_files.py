"""Reading AllenNLP's, bilm-tf's and simple_elmo's exports: `options.json` with an `.hdf5` file.

bilm-tf also reads words from a table in place of their characters: its `dump_token_embeddings` writes the vectors of a
vocabulary, `embedding` (words, P), and the biLM runs on those. Given such a dump, the character CNN is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import numpy as np

from elmo_hf.configuration_elmo import ElmoConfig
from elmo_hf.tokenization_elmo import ElmoTokenizer

from .allennlp import allennlp_rules, config_from_options
from .checkpoint import Checkpoint
from .errors import ConversionError
from .files import read_hdf5, read_options
from .reference import ReferenceElmo
from .rules import import_arrays


@dataclass(frozen=True)
class AllenNlpFiles:
    """The files of one checkpoint.

    Attributes:
        options: the options file.
        weights: the hdf5 file.
        vocabulary: for word input, one word a line.
        token_embeddings: bilm-tf's dump of that vocabulary's token vectors, to read words in place of characters.
    """

    options: Path
    weights: Path
    vocabulary: Path | None = None
    token_embeddings: Path | None = None

    @classmethod
    def in_folder(cls, folder: Path) -> "AllenNlpFiles":
        """Finds the files by their suffixes.

        Raises:
            ConversionError: if the folder does not hold exactly one options file and one weights file.
        """
        if not folder.is_dir():
            raise ConversionError(
                f"{folder} is not a folder; give a folder with `options.json` and one `.hdf5` file, or use "
                "`--options FILE --weights FILE`."
            )
        return cls.among({path.name: path for path in folder.iterdir() if path.is_file()}, folder)

    @classmethod
    def among(cls, files: Mapping[str, Path], where: Path, options: Path | None = None) -> "AllenNlpFiles":
        """Finds the files by the suffixes of their names.

        Args:
            files: paths by name.
            where: the folder or archive, for messages.
            options: the options file, if it is not among them.

        Raises:
            ConversionError: if they are not exactly one options file and one weights file.
        """
        named = sorted(name for name in files if fnmatch(name, "*options*.json"))
        found = [options] if options else [files[name] for name in ("options.json",) if name in files]
        found = found or [files[name] for name in named]
        weights = sorted(name for name in files if name.endswith(".hdf5"))
        if len(found) != 1 or len(weights) != 1:
            raise ConversionError(
                f"{where} must hold `options.json` and exactly one `.hdf5` file, found "
                f"{', '.join(sorted(files)) or 'nothing'}; name the files with `--options FILE --weights FILE`."
            )
        vocabularies = sorted(name for name in files if fnmatch(name, "*vocab*.txt"))
        return cls(found[0], files[weights[0]], files[vocabularies[0]] if vocabularies else None)


def read_allennlp(files: AllenNlpFiles, word_splitter: str = "ptb") -> Checkpoint:
    """Reads a checkpoint.

    Args:
        files: where it is.
        word_splitter: how the tokenizer splits raw text.

    Raises:
        ConversionError: if it cannot be converted.
    """
    options = read_options(files.options)
    arrays = read_hdf5(files.weights)
    notes: tuple[str, ...] = ()
    if files.token_embeddings is not None:
        options = {key: value for key, value in options.items() if key != "char_cnn"}
        arrays = {name: array for name, array in arrays.items() if name.startswith("RNN_")}
        arrays["embedding"] = read_token_embeddings(files.token_embeddings)
        notes = (f"the character CNN is not carried: words have the vectors of {files.token_embeddings.name}.",)
    shapes = {name: array.shape for name, array in arrays.items()}
    config = config_from_options(options, shapes, str(files.options))
    sources = [path for path in (files.options, files.weights, files.token_embeddings) if path is not None]
    return Checkpoint(
        config,
        import_arrays(allennlp_rules(config, arrays), arrays, str(files.weights)),
        _tokenizer(config, files, word_splitter),
        {path.name: path for path in sources},
        partial(ReferenceElmo, options, arrays) if config.token_encoder == "char_cnn" else None,
        notes,
    )


def read_token_embeddings(path: Path) -> np.ndarray:
    """Reads a dump of token vectors `(words, P)`.

    Raises:
        ConversionError: if the file is none.
    """
    arrays = read_hdf5(path)
    if set(arrays) != {"embedding"}:
        raise ConversionError(
            f"{path} must hold `embedding` and nothing else, as bilm-tf's dump_token_embeddings writes, found "
            f"{', '.join(sorted(arrays)) or 'no arrays'}."
        )
    return arrays["embedding"]


def _tokenizer(config: ElmoConfig, files: AllenNlpFiles, word_splitter: str) -> ElmoTokenizer:
    if config.token_encoder == "char_cnn":
        return ElmoTokenizer(max_word_length=config.max_word_length, word_splitter=word_splitter)
    if files.vocabulary is None:
        raise ConversionError(
            f"{files.weights} is of a model that reads word ids, so its vocabulary is needed to make them: "
            "put `vocab.txt` beside it, or give `--vocabulary FILE` (one word a line)."
        )
    try:
        tokenizer = ElmoTokenizer("word_embedding", word_splitter=word_splitter, vocab_file=str(files.vocabulary))
    except (OSError, ValueError) as error:
        raise ConversionError(f"{files.vocabulary}: {error}") from error
    if max(tokenizer.get_vocab().values()) >= config.vocab_size:
        raise ConversionError(
            f"{files.vocabulary} has more words than `embedding` in {files.token_embeddings or files.weights} has "
            f"rows, {config.vocab_size - 1}."
        )
    return tokenizer

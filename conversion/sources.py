"""Which files make up a checkpoint of AllenNLP or bilm-tf, and reading them.

    options.json + weights.hdf5                        a biLM, as AllenNLP and bilm-tf publish them
    options.json + weights.hdf5 + softmax.hdf5         the same with its language models' softmax
    options.json + checkpoint, model.ckpt-N.*          bilm-tf's save directory, which has the softmax

and beside them the vocabulary, one word a line, which word input and language models need.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .allennlp import SOFTMAX_BIAS, SOFTMAX_MATRIX, has_softmax
from .bilm_tf import read_variables
from .errors import ConversionError
from .files import read_hdf5, read_options
from .tensor_bundle import find_checkpoint


@dataclass(frozen=True)
class AllenNlpFiles:
    """The files of one checkpoint.

    Attributes:
        options: the options file.
        weights: the biLM's hdf5 file, or the `.index` of a TensorFlow checkpoint.
        vocabulary: the words of word input and of the softmax, one a line; None if there is none.
        softmax: the softmax's hdf5 file; None if there is none, or `weights` holds it.
    """

    options: Path
    weights: Path
    vocabulary: Path | None = None
    softmax: Path | None = None

    @classmethod
    def in_folder(cls, folder: Path) -> "AllenNlpFiles":
        """Finds the files by their names: `*options*.json`, `*.hdf5`, `*softmax*.hdf5`, `*vocab*.txt`, `*.index`.

        Raises:
            ConversionError: if the folder does not hold exactly one options file and one file of weights.
        """
        if not folder.is_dir():
            raise ConversionError(
                f"{folder} is not a folder; give a folder with `options.json` and one `.hdf5` file or a TensorFlow "
                "checkpoint, or use `--options FILE --weights FILE`."
            )
        options = _preferred(sorted(folder.glob("*options*.json")), "options.json")
        arrays = sorted(folder.glob("*.hdf5"))
        softmax = [path for path in arrays if "softmax" in path.name]
        weights = [path for path in arrays if path not in softmax]
        vocabulary = _preferred(sorted(folder.glob("*vocab*.txt")), "vocab.txt")
        has_trace = (folder / "checkpoint").is_file() or any(folder.glob("*.ckpt*"))
        if any(folder.glob("*.index")) or (has_trace and not arrays):
            checkpoint = find_checkpoint(folder)
            checkpoint = checkpoint.with_name(f"{checkpoint.name}.index")
            if arrays:
                raise ConversionError(
                    f"{folder} holds hdf5 files, {', '.join(path.name for path in arrays)}, and a TensorFlow "
                    f"checkpoint, {checkpoint.name}. Choose one: give `--options FILE` and `--weights FILE`, which "
                    f"is {checkpoint} for the language models with their softmax, or an hdf5 file."
                )
            weights = [checkpoint]
        if len(options) != 1 or len(weights) != 1 or len(softmax) > 1:
            names = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
            raise ConversionError(
                f"{folder} must hold `options.json` and exactly one `.hdf5` file, found {names}; "
                "name the files with `--options FILE --weights FILE`."
            )
        return cls(
            options[0],
            weights[0],
            vocabulary[0] if len(vocabulary) == 1 else None,
            softmax[0] if softmax else None,
        )

    def read(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Reads the options, and all arrays under the names of the hdf5 files.

        Raises:
            ConversionError: if a file is missing or damaged, or is not what its place is for.
        """
        options = read_options(self.options)
        arrays = read_hdf5(self.weights) if self._is_hdf5 else read_variables(self.weights.with_suffix(""))
        if self.softmax is not None:
            if has_softmax(arrays):
                raise ConversionError(f"{self.weights} has a softmax already, so {self.softmax} cannot be another.")
            softmax = read_hdf5(self.softmax)
            if not has_softmax(softmax) or not set(softmax) <= {SOFTMAX_MATRIX, SOFTMAX_BIAS}:
                raise ConversionError(
                    f"{self.softmax} must hold `{SOFTMAX_MATRIX}` and `{SOFTMAX_BIAS}`, the softmax of the language "
                    f"models, found {', '.join(sorted(softmax)) or 'no arrays'}."
                )
            arrays |= softmax
        return options, arrays

    @property
    def paths(self) -> list[Path]:
        """Every file that holds weights or options."""
        paths = [self.options, self.weights]
        if not self._is_hdf5:
            shards = f"{self.weights.stem}.data-"
            paths += sorted(path for path in self.weights.parent.iterdir() if path.name.startswith(shards))
        return paths if self.softmax is None else [*paths, self.softmax]

    @property
    def _is_hdf5(self) -> bool:
        return self.weights.suffix != ".index"


def _preferred(paths: list[Path], name: str) -> list[Path]:
    """The file of the usual name alone, if there is one."""
    files = [path for path in paths if path.is_file()]
    return [path for path in files if path.name == name] or files

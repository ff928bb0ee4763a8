"""What the name of a model means: the one place that decides it.

    a folder             with a model in it, or with files to convert first
    tiny                 the small English model in the package; see its README.md
    a published model    a name that `elmo-hf models` lists, such as `original`: its folder, which is made at first use
    org/name             a repository of the Hub, if there is no such folder

A folder in the working directory may have the name of a published model. If it holds a model, it is the folder that is
meant, else the published model; a note says which, because the name could mean both.
"""

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from ..text.notes import note

TINY = "tiny"
TINY_FOLDER = Path(__file__).parents[1] / "tiny_model"
# Suffixes of files that `elmo-hf convert` reads: of AllenNLP, bilm-tf and ELMoForManyLangs, and archives of these.
FOREIGN_SUFFIXES = (".hdf5", ".h5", ".index", ".th", ".pt", ".pkl", ".pb", ".zip", ".gz", ".bz2")


def proposed_name(name: str, names: Iterable[str]) -> str:
    """A question, with a blank in front, whether the name that is most like a wrong one is meant; "" if none is."""
    similar = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean `{similar[0]}`?" if similar else ""


class NotConvertedError(ValueError):
    """A folder or file has a model of another program, which must be converted before it is loaded.

    Attributes:
        source: the folder or file.
    """

    def __init__(self, source: str | Path, files: Sequence[str]) -> None:
        """Names the first of the files."""
        self.source = str(source)
        super().__init__(
            f"{source} is not converted yet: it holds {', '.join(files[:3])}. "
            "`elmo_hf.conversion.convert.convert_source` writes a folder that can be loaded."
        )


class UnknownNameError(ValueError):
    """A name is neither a folder nor the short name of a model.

    Attributes:
        is_file: whether it is the name of a file.
    """

    def __init__(self, name: str | Path) -> None:
        """Proposes the short name that is most like this one, if one is like it; says so if it is a file."""
        self.is_file = Path(name).is_file()
        if self.is_file:
            super().__init__(
                f"{name} is a file, but a model is a folder, a Hub name such as org/name, or a short name such as "
                "`tiny`."
            )
            return
        proposal = proposed_name(str(name), [TINY, *ModelNames.published()])
        super().__init__(
            f"{name} is neither a folder nor a short name, which are `tiny` and those of the published models "
            f"(docs/convert.md); a Hub name looks like org/name.{proposal}"
        )


class DownloadStoppedError(KeyboardInterrupt):
    """A download was stopped by Ctrl-C; the message says what is kept of it, as the beginning of a sentence."""


class PublishedModels(Protocol):
    """The published models by their names."""

    def __iter__(self) -> Iterator[str]:
        """The names."""

    def __contains__(self, name: str) -> bool:
        """Whether a published model has the name."""

    def folder_of(self, name: str) -> Path:
        """The folder of the published model, which is downloaded and converted at first use."""

    def is_kept(self, name: str) -> bool:
        """Whether its folder is on this machine."""

    def has_address(self, name: str) -> bool:
        """Whether it can be downloaded."""

    def lacks_softmax(self, name: str) -> bool:
        """Whether it is known to have no softmax before it is downloaded."""

    def facts(self, name: str) -> list[tuple[str, str]]:
        """What is known of it without its files, as rows of a name and a value."""


class ModelNames:
    """What this room cannot know, because the code that converts published models stands above it.

    Attributes:
        published: gives the published models, as `set_published_models` says.
    """

    published: ClassVar[Callable[[], PublishedModels]]


def set_published_models(make: Callable[[], PublishedModels]) -> None:
    """Says where the published models are; `make` is called when a name may be one of theirs."""
    ModelNames.published = staticmethod(make)


def model_folder(name: str | Path) -> str | Path:
    """The folder of `"tiny"` or of a published model, which is downloaded at first use; any other name unchanged.

    Raises:
        ConversionError: if a published model cannot be downloaded, or what was downloaded cannot be converted.
    """
    path = Path(name)
    short_name = str(name)
    if short_name != TINY and not is_published(short_name):
        return name
    if holds_model(path):
        _say_what_is_meant(f"{name} is the folder of this name here, not the model that elmo-hf knows by it.")
        return name
    if path.exists():
        _say_what_is_meant(
            f"{name} is the model that elmo-hf knows by this name; the file or folder of that name here holds no model."
        )
    if short_name == TINY:
        return TINY_FOLDER
    return ModelNames.published().folder_of(short_name)


def is_missing(name: str | Path) -> bool:
    """Whether a name means a published model that is not on this machine, so that its use would download it."""
    short_name = str(name)
    if not is_published(short_name) or holds_model(Path(name)):
        return False
    return not ModelNames.published().is_kept(short_name)


def lacks_softmax(name: str | Path) -> bool:
    """Whether a name means a published model that is not on this machine, and is known to have no softmax."""
    return is_missing(name) and ModelNames.published().lacks_softmax(str(name))


def is_published(name: str) -> bool:
    """Whether a published model has the name."""
    return not _has_slash(name) and name in ModelNames.published()


def _has_slash(name: str) -> bool:
    """Whether a name is a path or a repository."""
    return "/" in name or "\\" in name


def refuse_unknown(name: str) -> None:
    """Refuses a name that no model can have, before anything heavy is imported; a name with a slash may be on the Hub.

    Raises:
        UnknownNameError: if there is neither such a folder nor such a short name, or if it is a file of no model.
        OSError: if the system has no names of this length.
    """
    path = Path(name)
    if path.is_file() and not path.name.endswith(FOREIGN_SUFFIXES):
        raise UnknownNameError(name)
    if _has_slash(name) or path.exists():
        return
    if name != TINY and not is_published(name):
        raise UnknownNameError(name)


def holds_model(folder: Path) -> bool:
    """Whether a folder has a model, or files that `elmo-hf convert` reads."""
    if not folder.is_dir():
        return False
    suffixes = (*FOREIGN_SUFFIXES, ".safetensors")
    return any(path.name == "config.json" or path.name.endswith(suffixes) for path in folder.iterdir())


@functools.cache  # a command opens its model several times
def _say_what_is_meant(message: str) -> None:
    note(message)

"""Published models by their names: each is downloaded and converted at its first use, and kept.

    first use   download  -->  convert, compare with the witness  -->  HF_HOME/elmo-hf/models/NAME
    later       that folder, without a network

The folder gets its name when it is complete. Of several processes that use a name for the first time, one makes the
folder and the others wait for it.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tqdm import tqdm

from elmo_hf.disk.whole_files import move_into_place, only_writer, partial_of, remove_leftovers, workplace
from elmo_hf.share.facts_files import facts_file

from .published import (
    CACHE,
    PUBLISHED,
    UNKNOWN,
    DownloadOptions,
    Published,
    absolute,
    find_download,
    refuse_unreachable,
    saying_that_download_is_lost,
    unknown_name,
)
from .refusals import ConversionError


@dataclass(frozen=True)
class KeptModels:
    """The published models, and those of them that are kept on this machine.

    Attributes:
        published: the table.
        folder: the folder for the models' folders.
        downloads: the folder of checkpoints that were downloaded for themselves or copied there, which are then used.
        base_url: the address in front of relative ones, as in `DownloadOptions`.
    """

    published: Mapping[str, Published] = field(default_factory=lambda: PUBLISHED)
    folder: Path = field(default_factory=lambda: CACHE / "models")
    downloads: Path = field(default_factory=lambda: CACHE)
    base_url: str | None = None

    def __contains__(self, name: str) -> bool:
        """Whether a published model has the name."""
        return name in self.published

    def __iter__(self) -> Iterator[str]:
        """The names of the published models."""
        return iter(self.published)

    def is_kept(self, name: str) -> bool:
        """Whether the model was used before and is on this machine."""
        return (self.folder / name).is_dir()

    def has_address(self, name: str) -> bool:
        """Whether the model can be downloaded; others must be fetched by hand."""
        return bool(self.published[name].addresses)

    def lacks_softmax(self, name: str) -> bool:
        """Whether the model is known to have no softmax before it is downloaded."""
        return self.published[name].lacks_softmax

    def size_on_disk(self, name: str) -> str:
        """The size of a kept model's folder, such as `375 MB`; else `-`, or `by hand` if the model has no address."""
        if self.is_kept(name):
            num_bytes = sum(path.stat().st_size for path in (self.folder / name).iterdir())
            return f"{num_bytes / 1e6:.0f} MB"
        return "-" if self.has_address(name) else "by hand"

    def facts(self, name: str) -> list[tuple[str, str]]:
        """All that is known of a published model as rows of a name and a value; raises ValueError if there is none."""
        if name not in self:
            raise ConversionError(unknown_name(name, self.published))
        row = self.published[name]
        rows = [
            ("name", name),
            ("language", row.language),
            ("size", row.size or UNKNOWN),
            ("licence", row.licence),
            ("trained on", row.text),
            ("source", row.source),
        ]
        facts = facts_file(name)
        if facts is not None:
            rows.append(("facts", str(facts)))
        for part, addresses in absolute(row.addresses, self.base_url).items():
            rows += [(part, address) for address in addresses]
        folder = str(self.folder / name) if self.is_kept(name) else ""
        rows.append(("here", f"{self.size_on_disk(name)} {folder}".rstrip()))
        incomplete = partial_of(self.folder / name)
        if incomplete.exists():
            rows.append(("incomplete", f"{incomplete}, of a first use that runs now or was killed"))
        return rows

    def folder_of(self, name: str) -> Path:
        """The model's folder, which is made at first use.

        Raises:
            ConversionError: if the checkpoint cannot be downloaded or converted, or fails the check; nothing is kept.
        """
        folder = self.folder / name
        if self.is_kept(name):
            remove_leftovers(folder)
            return folder
        if not self.has_address(name):
            raise ConversionError(
                f"the published model {name} has no known address, so it cannot be downloaded. {self._advice(name)}"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        with workplace(folder, must_wait=True) as partial:
            if not self.is_kept(name):  # another process may have made it meanwhile
                self._convert(name, partial)
                move_into_place(partial / name, folder)
        return folder

    def remove(self, name: str) -> Path:
        """Removes a kept model, and what a first use that was killed left of it.

        Returns:
            what was removed: the model's folder, or only the incomplete one beside it.

        Raises:
            ConversionError: if there is no published model of this name.
            ValueError: if nothing of it is here.
            BlockingIOError: if a process is making it.
        """
        if name not in self:
            raise ConversionError(unknown_name(name, self.published))
        folder = self.folder / name
        incomplete = partial_of(folder)
        if not self.is_kept(name) and not incomplete.exists():
            raise ValueError(
                f"no published model {name!r:.50} is kept in {self.folder}, so there is nothing to remove."
            )
        with only_writer(folder) as partial:  # removes what is incomplete
            if not self.is_kept(name):
                return incomplete
            folder.rename(partial)  # so no process finds half of it
            shutil.rmtree(partial)
        return folder

    def _announcement(self, name: str) -> str:
        """What is about to be done."""
        row = self.published[name]
        address = absolute(row.addresses, self.base_url)["weights"][0]
        return (
            f"Downloading {name} (size {row.size or UNKNOWN}, licence {row.licence}) from {address}; it will be "
            f"converted, checked and kept in {self.folder / name}."
        )

    def _convert(self, name: str, work: Path) -> None:
        """Downloads and converts a model in the folder `work`, as `work/NAME`."""
        from .convert import FolderSettings
        from .publish import NO_FILES, convert_published

        advice = (
            f"The first use of {name} downloads it: do the same again when this machine has a network, or copy the "
            f"folder {self.folder / name} from a machine that has used it. {self._advice(name)}"
        )
        options = DownloadOptions(
            self.base_url, self.downloads / name, self.published, advice=advice, advice_on_answers=self._advice(name)
        )
        settings = FolderSettings(check=True, loaded_folder=(self.folder / name).as_posix())
        download = find_download(name, options)
        if download.has_files:
            convert_published(name, work / name, NO_FILES, settings, options)
            return
        for urls in download.urls.values():
            refuse_unreachable(urls, advice)
        options = replace(options, folder=work / "files")
        tqdm.write(self._announcement(name), sys.stderr)
        with saying_that_download_is_lost():
            convert_published(name, work / name, NO_FILES, settings, options)

    def _advice(self, name: str) -> str:
        """What to do with files from elsewhere."""
        return (
            f"If you have its files (where to get them: {self.published[name].source}), convert them (docs/convert.md) "
            "and give the name of the new folder instead. `tiny` is in the package and needs no network."
        )

"""The published checkpoints and their download.

The table `published.tsv` has their addresses and the facts that public pages or code state. For rows with `options`,
`model_cards/NAME.md` has more facts (without the `-lm` of a name). A row has one of these groups of addresses:

    options, weights                 AllenNLP's two files; some with the softmax and its vocabulary
    options, weights, vocabulary     a TensorFlow checkpoint of bilm-tf: `weights` is its `.index`
    weights                          an archive
    none                             files to fetch by hand from the `source`

A cell may have several addresses of one file, separated by blanks, which are tried in turn. Few checkpoints were
published with checksums (MD5). So the first download also records its SHA-256 in `SHA256SUMS` beside the files (check
with `sha256sum -c`) and in the model card; later downloads and files of the user must have the same.
"""

import csv
import hashlib
import shutil
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import Request

from huggingface_hub.constants import HF_HOME
from tqdm import tqdm

from elmo_hf.disk.checksums import SUMS, recorded_sums, sha256_of_file, sums_agree, write_sums
from elmo_hf.disk.whole_files import new_file

from .refusals import ConversionError, listed, shortened
from .sources import files_in

BASE_URL = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
TABLE_FILE = Path(__file__).with_name("published.tsv")
INDEX_SUFFIX = ".index"
DATA_SUFFIX = ".data-00000-of-00001"
MOST_SILENCE = 60.0  # seconds


@dataclass(frozen=True)
class Published:
    """One published checkpoint; fields that are unknown or missing are empty.

    Attributes:
        options, weights, softmax, vocabulary: addresses of its files, below `BASE_URL` or elsewhere, each with mirrors.
        language: its ISO 639 code.
        size: LSTM cells and projection of each direction.
        licence: its name on the Hub, or `no-restrictions` or `unknown`.
        text: the training text.
        source: the page with the addresses.
        md5: the published MD5 of each file, in the order of the addresses.
    """

    options: str
    weights: str
    softmax: str = ""
    vocabulary: str = ""
    language: str = ""
    size: str = ""
    licence: str = ""
    text: str = ""
    source: str = ""
    md5: str = ""

    @property
    def addresses(self) -> dict[str, list[str]]:
        """The addresses of each file, by its field."""
        addresses = {}
        for name in ("options", "weights", "softmax", "vocabulary"):
            urls = getattr(self, name).split()
            if urls:
                addresses[name] = urls
        return addresses

    def below(self, url: str) -> dict[str, list[str]]:
        """The same with the files elsewhere: `url` is the address of the only file, or that in front of their names."""
        if len(self.addresses) < 2:
            return {"weights": [url]}
        return {name: [f"{url.rstrip('/')}/{name_of(urls[0])}"] for name, urls in self.addresses.items()}


def name_of(url: str) -> str:
    """The file's name in its address."""
    return Path(urlsplit(url).path).name


_LINES = TABLE_FILE.read_text(encoding="utf-8").splitlines()
_ROWS = csv.DictReader(_LINES, restval="", delimiter="\t", quoting=csv.QUOTE_NONE)
PUBLISHED = {row.pop("name"): Published(**row) for row in _ROWS}


def download(
    name: str,
    base_url: str = BASE_URL,
    folder: Path | None = None,
    published: Mapping[str, Published] = PUBLISHED,
    origin: str | None = None,
) -> tuple[Path, dict[str, Path]]:
    """Downloads a published checkpoint, with a progress bar, unless it was downloaded before, and prints its checksums.

    Args:
        name: a key of `published`.
        base_url: address in front of the file names.
        folder: the folder for the files; None means `elmo-hf/NAME` below `$HF_HOME`.
        published: the table.
        origin: another source of the files: an address, as in `Published.below`, or the user's own folder, archive or
            file, which is used in place.

    Returns:
        the file of weights, or the archive or folder with all files; and the other files by the names of their fields.

    Raises:
        ConversionError: if the name is unknown, a download fails, or a recorded or published checksum differs.
    """
    if name not in published:
        raise ConversionError(
            f"there is no published model {shortened(repr(name))}; the names are {listed(published)}."
        )
    row = published[name]
    folder = folder or Path(HF_HOME) / "elmo-hf" / name
    if origin is not None and not origin.startswith(("http://", "https://")):
        return _files_of_user(Path(origin), row, folder)
    advice = (
        f"If you find the files elsewhere, perhaps by {row.source}, give their folder, their archive or its address as "
        "`origin`."
    )
    addresses = row.addresses if origin is None else row.below(origin)
    if not addresses:
        raise ConversionError(f"the published model {name} has no known address, so you must fetch its files. {advice}")
    paths = _download_files(row, addresses, base_url, folder, advice)
    if not (folder / SUMS).exists():
        _check_published(row, paths, "Delete it to download it again.")
        write_sums(folder)
        tqdm.write((folder / SUMS).read_text(encoding="utf-8"), sys.stderr, end="")
    if not sums_agree(folder):
        raise ConversionError(
            f"the files in {folder} are not those that its {SUMS} lists. Delete {folder} to download them again."
        )
    return paths.pop("weights"), paths


def _download_files(
    row: Published, addresses: Mapping[str, Sequence[str]], base_url: str, folder: Path, advice: str
) -> dict[str, Path]:
    """Downloads the files that are missing in `folder`; returns their paths by field."""
    paths = {}
    for field, relative_urls in addresses.items():
        urls = [urljoin(base_url, url) for url in relative_urls]
        published_urls = row.addresses.get(field, urls)
        paths[field] = fetch(urls, folder / name_of(published_urls[0]), advice)
        if urls[0].endswith(INDEX_SUFFIX):
            data_urls = [url.removesuffix(INDEX_SUFFIX) + DATA_SUFFIX for url in urls]
            fetch(data_urls, folder / name_of(data_urls[0]), advice)
    return paths


def _files_of_user(path: Path, row: Published, folder: Path) -> tuple[Path, dict[str, Path]]:
    """The user's files as `download` returns them, with the checksums recorded in `folder` and beside them."""
    beside = path if path.is_dir() else path.parent
    files = list(files_in(path, "*").values()) if path.is_dir() else [path]
    for record in (folder, beside):
        _check_recorded(files, record)
    paths = {field: path / name_of(urls[0]) for field, urls in row.addresses.items()}
    if not paths or not all(file.is_file() for file in paths.values()):
        return path, {}
    _check_published(row, paths, "If you mean this file, convert it without the published model's name.")
    return paths.pop("weights"), paths


def _check_recorded(files: Sequence[Path], folder: Path) -> None:
    """Raises ConversionError if the list of checksums in `folder` has another one for a file of this name."""
    sums = recorded_sums(folder)
    for file in files:
        if file.name in sums and sha256_of_file(file) != sums[file.name]:
            raise ConversionError(
                f"{file} has another checksum than {folder / SUMS} says. Get the file again or, if you mean this file, "
                "convert it without the published model's name."
            )


def _check_published(row: Published, paths: Mapping[str, Path], advice: str) -> None:
    """Raises ConversionError, which ends with `advice`, unless files have their published digests."""
    for path, expected in zip(paths.values(), row.md5.split(), strict=False):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "md5").hexdigest()
        if digest != expected:
            raise ConversionError(
                f"{path} is not the published file: its MD5 is {digest}, and that of the published file is {expected}. "
                f"{advice}"
            )


class SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, except from https to an address without encryption."""

    def redirect_request(
        self, request: Request, answer: Any, code: int, message: str, headers: Any, address: str
    ) -> Request | None:
        """The request for the next address."""
        if request.type == "https" and urlsplit(address).scheme != "https":
            raise URLError(f"it redirects to {address}, without encryption")
        return super().redirect_request(request, answer, code, message, headers, address)


def fetch(urls: Sequence[str], path: Path, advice: str = "", seconds: float = MOST_SILENCE) -> Path:
    """Downloads one file, with a progress bar, unless it was downloaded before.

    Args:
        urls: its addresses, which are tried in turn.
        path: the file.
        advice: a sentence that tells the user what to do if all fail.
        seconds: how long a server may be silent.

    Raises:
        ConversionError: if the download fails or breaks off; nothing is kept then.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for number, url in enumerate(urls, start=1):
        try:
            _download(url, path, seconds)
            break
        except (OSError, HTTPException) as error:
            failures.append(f"{url}: {error}")
            if number == len(urls):
                raise ConversionError(f"cannot download {'; '.join(failures)}. {advice}".rstrip()) from error
            tqdm.write(f"Cannot download {url}: {error}. Trying {urls[number]}.", sys.stderr)
    return path


def _download(url: str, path: Path, seconds: float) -> None:
    """Downloads a file from one address; raises OSError or HTTPException if that fails."""
    bar = {"desc": path.name, "unit": "B", "unit_scale": True, "unit_divisor": 1024}
    with (
        new_file(path) as partial,
        urllib.request.build_opener(SecureRedirects).open(url, timeout=seconds) as answer,
        partial.open("wb") as file,
    ):
        size = int(answer.headers.get("Content-Length", 0))
        with tqdm.wrapattr(answer, "read", total=size or None, **bar) as reader:
            shutil.copyfileobj(reader, file)
        if size and file.tell() != size:
            raise OSError(f"it ended after {file.tell():,} of {size:,} bytes")

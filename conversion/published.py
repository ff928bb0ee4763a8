"""The published checkpoints and their download.

The table `published.tsv` has their addresses and the facts that public pages or code state. For rows with `options`,
`model_cards/NAME.md` has more facts (without the `-lm` of a name). A row has one of these groups of addresses:

    options, weights                 AllenNLP's two files; some with the softmax and its vocabulary
    options, weights, vocabulary     a TensorFlow checkpoint of bilm-tf: `weights` is its `.index`
    weights                          an archive
    none                             files to fetch by hand from the `source`

Most checkpoints were published without checksums, so the first download records its checksums in `SHA256SUMS` beside
the files (check with `sha256sum -c`) and in the model card.
"""

import csv
import shutil
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import Request

from huggingface_hub.constants import HF_HOME
from tqdm import tqdm

from elmo_hf.disk.checksums import SUMS, sums_agree, write_sums
from elmo_hf.disk.whole_files import new_file

from .refusals import ConversionError, listed, require

BASE_URL = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
TABLE = Path(__file__).with_name("published.tsv")
INDEX, DATA = ".index", ".data-00000-of-00001"
MOST_SILENCE = 60.0  # seconds


@dataclass(frozen=True)
class Published:
    """One published checkpoint; fields that are unknown or missing are empty.

    Attributes:
        options, weights, softmax, vocabulary: addresses of its files, below `BASE_URL` or elsewhere.
        language: its ISO 639 code.
        size: LSTM cells and projection of each direction.
        licence: its name on the Hub, or `no-restrictions` or `unknown`.
        text: the training text.
        source: the page with the addresses.
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


_ROWS = csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
PUBLISHED = {row.pop("name"): Published(**row) for row in _ROWS}


def download(
    name: str, base_url: str = BASE_URL, folder: Path | None = None, published: Mapping[str, Published] = PUBLISHED
) -> tuple[Path, dict[str, Path]]:
    """Downloads a published checkpoint, with a progress bar, unless it was downloaded before, and prints its checksums.

    Args:
        name: a key of `published`.
        base_url: address in front of the file names.
        folder: the folder for the files; None means `elmo-hf/NAME` below `$HF_HOME`.
        published: the table.

    Returns:
        the file of weights, or the archive with all files; and the other files by the names of their fields.

    Raises:
        ConversionError: if the name is unknown, if a download fails, or if a file differs from its recorded checksum.
    """
    advice = "`elmo-hf models` lists all names."
    require(name in published, "--model", "", f"one of {listed(published)}", name, advice)
    row = published[name]
    advice = f"Fetch it from {row.source}, then run `elmo-hf convert FILE DEST`."
    require(bool(row.weights), "--model", "", "a model whose address is known", name, advice)
    folder = folder or Path(HF_HOME) / "elmo-hf" / name
    folder.mkdir(parents=True, exist_ok=True)
    addresses = {role: getattr(row, role) for role in ("options", "weights", "softmax", "vocabulary")}
    paths = {role: fetch(urljoin(base_url, address), folder) for role, address in addresses.items() if address}
    if row.weights.endswith(INDEX):
        fetch(urljoin(base_url, row.weights.removesuffix(INDEX) + DATA), folder)
    if not (folder / SUMS).exists():
        write_sums(folder)
        tqdm.write((folder / SUMS).read_text(encoding="utf-8"), sys.stderr, end="")
    advice = f"Delete {folder} to download again."
    require(sums_agree(folder), folder, "", f"as its {SUMS} says", "changed files", advice)
    return paths.pop("weights"), paths


class SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, except from https to an address without encryption."""

    def redirect_request(self, request: Request, *rest: Any) -> Request | None:
        """The next request; `rest` ends with its address."""
        if request.type == "https" and urlsplit(rest[-1]).scheme != "https":
            raise URLError(f"it redirects to {rest[-1]}, without encryption")
        return super().redirect_request(request, *rest)


def fetch(url: str, folder: Path, seconds: float = MOST_SILENCE) -> Path:
    """Downloads one file into a folder, with a progress bar, unless it was downloaded before.

    Args:
        url: its address.
        folder: the folder.
        seconds: how long the server may be silent.

    Raises:
        ConversionError: if the download fails or breaks off; nothing is kept then.
    """
    path = folder / Path(urlsplit(url).path).name
    if path.exists():
        return path
    bar = {"desc": path.name, "unit": "B", "unit_scale": True, "unit_divisor": 1024}
    try:
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
    except (OSError, HTTPException) as error:
        raise ConversionError(
            f"cannot download {url}: {error}. Without a network, fetch the files elsewhere and run "
            "`elmo-hf convert SOURCE DEST`."
        ) from error
    return path

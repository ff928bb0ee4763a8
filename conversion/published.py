"""The published checkpoints and their download.

Addresses and file names come from AllenNLP's page (allennlp.org/elmo) and the pages it links to; `published_cards.py`
has the facts about each model. Most were published without checksums, so the first download records its own in
`SHA256SUMS` beside the files (check with `sha256sum -c`) and in the model card.
"""

import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from huggingface_hub.constants import HF_HOME
from tqdm import tqdm

from elmo_hf.files import new_file, sha256_of_file

from .errors import ConversionError

if TYPE_CHECKING:
    from .readers.allennlp import AllenNlpFiles

BASE_URL = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
RECORD = "SHA256SUMS"


@dataclass(frozen=True)
class Published:
    """One published checkpoint: its two files, below `BASE_URL` or elsewhere."""

    options: str
    weights: str


def _official(folder: str) -> Published:
    return Published(f"{folder}/elmo_{folder}_options.json", f"{folder}/elmo_{folder}_weights.hdf5")


def _in_one_place(address: str) -> Published:
    return Published(f"{address}options.json", f"{address}weights.hdf5")


PUBLISHED = {
    "small": _official("2x1024_128_2048cnn_1xhighway"),
    "medium": _official("2x2048_256_2048cnn_1xhighway"),
    "original": _official("2x4096_512_2048cnn_2xhighway"),
    "5.5B": _official("2x4096_512_2048cnn_2xhighway_5.5B"),
    "pt": Published("contributed/pt/elmo_pt_options.json", "contributed/pt/elmo_pt_weights.hdf5"),
    "pt-wikipedia": Published("contributed/pt/wikipedia/options.json", "contributed/pt/wikipedia/elmo_pt_weights.hdf5"),
    "pt-brwac": Published("contributed/pt/brwac/options.json", "contributed/pt/brwac/elmo_pt_weights_dgx1.hdf5"),
    "pubmed": Published(
        "contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_options.json",
        "contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5",
    ),
    "de": _in_one_place(
        "https://github.com/t-systems-on-site-services-gmbh/german-elmo-model/releases/download/files_1/"
    ),
    "ja": _in_one_place("https://exawizardsallenlp.blob.core.windows.net/data/"),
    "eu": _in_one_place("https://schweter.eu/cloud/eu-elmo/"),
    "ta": _in_one_place("https://schweter.eu/cloud/ta-elmo/"),
}


def check_name(name: str) -> None:
    """Checks the name of a published model; light, so that the command line refuses a wrong one at once.

    Raises:
        ConversionError: if the name is not a key of `PUBLISHED`.
    """
    if name not in PUBLISHED:
        raise ConversionError(f"there is no published model {name!r}; known are {', '.join(PUBLISHED)}.")


def download(name: str, base_url: str = BASE_URL, folder: Path | None = None) -> "AllenNlpFiles":
    """Downloads a published checkpoint, with a progress bar, unless it is there already.

    Args:
        name: a key of `PUBLISHED`.
        base_url: address that the file names continue.
        folder: the folder for the files; None means `elmo-hf/NAME` below `$HF_HOME`.

    Raises:
        ConversionError: if the name is unknown, a download fails, or a file differs from the recorded one.
    """
    from .readers.allennlp import AllenNlpFiles

    check_name(name)
    published = PUBLISHED[name]
    folder = folder or Path(HF_HOME) / "elmo-hf" / name
    folder.mkdir(parents=True, exist_ok=True)
    paths = [fetch(urljoin(base_url, part), folder) for part in (published.options, published.weights)]
    _check_record(folder / RECORD, paths)
    return AllenNlpFiles(*paths)


def fetch(url: str, folder: Path) -> Path:
    """Downloads one file into a folder, with a progress bar, unless it is there already.

    Raises:
        ConversionError: if the download fails or breaks off; nothing is kept then.
    """
    path = folder / Path(urlsplit(url).path).name
    if path.exists():
        return path
    try:
        with new_file(path) as partial, tqdm(desc=path.name, unit="B", unit_scale=True, unit_divisor=1024) as bar:

            def show(num_blocks: int, block_size: int, total: int) -> None:
                bar.total = total
                bar.update(min(num_blocks * block_size, total) - bar.n)

            # Unlike torch.hub's function, it fails if the connection ends before the file does.
            urllib.request.urlretrieve(url, partial, show)
    except (urllib.error.URLError, OSError) as error:
        raise ConversionError(
            f"cannot download {url}: {error}. Without a network, download the options and the weights file "
            "elsewhere and run `elmo-hf convert --options FILE --weights FILE DEST`."
        ) from error
    return path


def _check_record(record: Path, paths: list[Path]) -> None:
    """Records the checksums on the first download; on later ones the files must match the record."""
    found = {path.name: sha256_of_file(path) for path in paths}
    if record.exists():
        lines = record.read_text(encoding="utf-8", errors="replace").splitlines()
        recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
        changed = [name for name, digest in found.items() if recorded.get(name) != digest]
        if changed:
            raise ConversionError(
                f"{', '.join(changed)} in {record.parent} changed since {record.name} was written; "
                "delete the folder to download again."
            )
    else:
        record.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()), encoding="utf-8")

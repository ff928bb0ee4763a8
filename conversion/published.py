"""The published checkpoints and their download.

The table `published.tsv` has their addresses and what is known of them; only what a public page or code gives is there.
`model_cards/` has more facts about those of two files, below their names. A row has one of these:

    options, weights                 AllenNLP's two files; some with the softmax and its vocabulary
    options, weights, vocabulary     a TensorFlow checkpoint of bilm-tf: `weights` is its `.index`
    weights                          an archive
    none                             files that are to be fetched by hand from the `source`

Most were published without checksums, so the first download records its own in `SHA256SUMS` beside the files (check
with `sha256sum -c`) and in the model card.
"""

import csv
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from huggingface_hub.constants import HF_HOME
from tqdm import tqdm

from elmo_hf.disk.checksums import sha256_of_file
from elmo_hf.disk.whole_files import new_file

from .errors import ConversionError

if TYPE_CHECKING:
    from .readers.allennlp import AllenNlpFiles

BASE_URL = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
RECORD = "SHA256SUMS"
TABLE = Path(__file__).with_name("published.tsv")
INDEX, DATA = ".index", ".data-00000-of-00001"
MOST_NAMED = 12


@dataclass(frozen=True)
class Published:
    """One published checkpoint. What is not known or not there is empty.

    Attributes:
        options, weights, softmax, vocabulary: addresses of its files, below `BASE_URL` or elsewhere.
        language: its ISO 639 code.
        size: LSTM cells and projection of each direction.
        licence: the Hub's name of it; `no-restrictions` and `unknown` are none.
        text: what it was trained on.
        source: the page that gives the addresses.
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

    @property
    def files(self) -> dict[str, str]:
        """The addresses by the names of `AllenNlpFiles`."""
        named = {name: getattr(self, name) for name in ("options", "weights", "softmax", "vocabulary")}
        return {name: address for name, address in named.items() if address}

    @property
    def labels(self) -> dict[str, Any]:
        """What is known of the weights, for the card of a converted archive."""
        from elmo_hf.share.saved_card import card_labels

        licence = None if self.licence in ("no-restrictions", "unknown") else self.licence
        return card_labels(licence, [self.language], self.source)


def _read_table() -> dict[str, Published]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row.pop("name"): Published(**row) for row in rows}


PUBLISHED = _read_table()


def check_name(name: str) -> None:
    """Checks the name of a published model; light, so that the command line refuses a wrong one at once.

    Raises:
        ConversionError: if the name is not a key of `PUBLISHED`, or its files are to be fetched by hand.
    """
    if name not in PUBLISHED:
        known = ", ".join(list(PUBLISHED)[:MOST_NAMED])
        raise ConversionError(
            f"there is no published model {name!r}; known are {known} and {len(PUBLISHED) - MOST_NAMED} more, which "
            "`elmo-hf models` lists."
        )
    if not PUBLISHED[name].weights:
        raise ConversionError(
            f"{name} must be fetched by hand from {PUBLISHED[name].source}, because the address of its file is not "
            "known. Then run `elmo-hf convert FILE DEST`."
        )


def download(name: str, base_url: str = BASE_URL, folder: Path | None = None) -> "AllenNlpFiles | Path":
    """Downloads a published checkpoint, with a progress bar, unless it is there already.

    Args:
        name: a key of `PUBLISHED`.
        base_url: address that the file names continue.
        folder: the folder for the files; None means `elmo-hf/NAME` below `$HF_HOME`.

    Returns:
        its files, or the archive that holds them.

    Raises:
        ConversionError: if the name is unknown, a download fails, or a file differs from the recorded one.
    """
    check_name(name)
    published = PUBLISHED[name]
    folder = folder or Path(HF_HOME) / "elmo-hf" / name
    folder.mkdir(parents=True, exist_ok=True)
    paths = {role: fetch(urljoin(base_url, address), folder) for role, address in published.files.items()}
    fetched = list(paths.values())
    if published.weights.endswith(INDEX):
        fetched.append(fetch(urljoin(base_url, published.weights.removesuffix(INDEX) + DATA), folder))
    _check_record(folder / RECORD, fetched)
    if not published.options:
        return paths["weights"]
    from .readers.allennlp import AllenNlpFiles

    return AllenNlpFiles(**paths)


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
        what, how = "it", "FILE DEST"
        if path.suffix in (".json", ".hdf5"):
            what, how = "the options and the weights file", "--options FILE --weights FILE DEST"
        raise ConversionError(
            f"cannot download {url}: {error}. Without a network, download {what} elsewhere and run "
            f"`elmo-hf convert {how}`."
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

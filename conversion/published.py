"""The published checkpoints and their download.

The table `published.tsv` has their addresses and the facts that public pages or code state. For rows with `options`,
`model_cards/NAME.md` has more facts (without the `-lm` of a name). A row has one of these groups of addresses:

    options, weights                 AllenNLP's two files; some with the softmax and its vocabulary
    options, weights, vocabulary     a TensorFlow checkpoint of bilm-tf: `weights` is its `.index`
    weights                          an archive
    none                             files to fetch by hand from the `source`

A cell may have several addresses of one file, separated by blanks, which are tried in turn. Those without a scheme
stand below `BASE_URL`, or below a mirror of it that the environment variable `ELMO_HF_BASE_URL` names. With
`HF_HUB_OFFLINE=1` only addresses of this machine are asked, whoever chose them.

A server may send anything in place of a file. So downloaded files are kept only after they were read as the checkpoint,
and their folder has a list of them, `SHA256SUMS`. A folder without the list belongs to the user: its files are used,
and nothing in it is removed. Few checkpoints were published with checksums (MD5), so the list
also records the SHA-256 of the first download (check with `sha256sum -c`), as the model card does; later downloads and
files of the user must have the same.
"""

import csv
import hashlib
import os
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import Request

from huggingface_hub import constants
from tqdm import tqdm

from elmo_hf.disk.checksums import SUMS, recorded_sums, sha256_of_file, write_sums
from elmo_hf.disk.whole_files import move_into_place, new_file, only_writer, remove_leftovers
from elmo_hf.folder.model_names import DownloadStoppedError, proposed_name

from .refusals import AnotherModelError, ConversionError, listed, shortened
from .sources import files_in

BASE_URL = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
MIRROR_VARIABLE = "ELMO_HF_BASE_URL"
TABLE_FILE = Path(__file__).with_name("published.tsv")
INDEX_SUFFIX = ".index"
DATA_SUFFIX = ".data-00000-of-00001"
MOST_SILENCE = 60.0  # seconds
MOST_BYTES = 32 << 30  # of one file, far more than any of the table has
BLOCK_BYTES = 1 << 16
# What the table says of a licence that the authors did not name, and of files that anyone may use for anything.
UNKNOWN = "unknown"
NO_RESTRICTIONS = "no-restrictions"
# Where downloaded checkpoints and converted models are kept.
CACHE = Path(constants.HF_HOME) / "elmo-hf"
# The hosts in addresses of this machine; an address with file:// has none.
THIS_MACHINE = (None, "localhost", "127.0.0.1", "::1")


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

    @property
    def digests(self) -> dict[str, str]:
        """The published MD5 of each file, by its field; empty if they were not published."""
        return dict(zip(self.addresses, self.md5.split(), strict=False))

    @property
    def lacks_softmax(self) -> bool:
        """Whether the files are AllenNLP's two, of the biLM alone; of an archive this is not known."""
        return self.options != "" and self.vocabulary == ""

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


def unknown_name(name: str, published: Mapping[str, Published]) -> str:
    """The error about a name that is not in the table."""
    proposal = proposed_name(name, published)
    return f"there is no published model {shortened(repr(name))}; the names are {listed(published)}.{proposal}"


def _mirror() -> str:
    """The address of a mirror that the environment variable names; "" without one."""
    address = os.environ.get(MIRROR_VARIABLE, "")
    if address and "://" not in address:
        raise ConversionError(
            f"the environment variable {MIRROR_VARIABLE} must be an address such as http://{address}, found "
            f"{address!r}."
        )
    return address


def absolute(addresses: Mapping[str, Sequence[str]], base_url: str | None = None) -> dict[str, list[str]]:
    """The same addresses with `base_url` in front of relative ones; None: that of a mirror, or `BASE_URL`.

    Raises:
        ConversionError: if the address of the mirror has no `http://` or the like.
    """
    if base_url is None:
        base_url = _mirror()
    if base_url == "":
        base_url = BASE_URL
    folder = f"{base_url.rstrip('/')}/"  # `urljoin` replaces what follows the last slash
    complete = {}
    for part, urls in addresses.items():
        complete[part] = [urljoin(folder, url) for url in urls]
    return complete


@dataclass(frozen=True)
class DownloadOptions:
    """Where the files of a published checkpoint come from, and where they are kept.

    Attributes:
        base_url: the address in front of relative ones; None means that of a mirror, or `BASE_URL`.
        folder: the folder for the files; None means `elmo-hf/NAME` below `$HF_HOME`, and for another address as
            `origin` a folder beside it. Files that were copied there by hand are used.
        published: the table.
        origin: another source of the files: an address, as in `Published.below`, or the user's own folder, archive or
            file, which is used in place.
        remedy: what to do with files from elsewhere, for errors.
        advice: what the error says to do if no server can be reached; None: the `remedy` for files from elsewhere.
        advice_on_answers: the same if a server answers with something else than the checkpoint; None: `advice`.
    """

    base_url: str | None = None
    folder: Path | None = None
    published: Mapping[str, Published] = field(default_factory=lambda: PUBLISHED)
    origin: str | None = None
    remedy: str = "give their folder, their archive or its address as `origin`"
    advice: str | None = None
    advice_on_answers: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the files are the user's own, on this machine."""
        return self.origin is not None and not self.origin.startswith(("http://", "https://"))


@contextmanager
def saying_that_download_is_lost() -> Iterator[None]:
    """Gives Ctrl-C, in a block that keeps a download only at its end, the error that says so."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise DownloadStoppedError("A download is kept only after it was read and checked") from stop


Files = tuple[Path, dict[str, Path]]  # the weights, or an archive or folder with all; and the others by their fields
Reader = Callable[[Published, Files], None]  # reads the files of a row, or raises ConversionError


@dataclass(frozen=True)
class Download:
    """The files of one checkpoint on servers and on this machine.

    Attributes:
        row: what the table says of the checkpoint.
        urls: the addresses of each file, by its field.
        folder: the folder of the downloaded files. Without a list of them it is a folder of the user, with files that
            were copied there by hand or with others; nothing of these is changed or removed.
        advice: what the error says to do if no server can be reached.
        advice_on_answers: the same if a server answers with something else than the checkpoint.
    """

    row: Published
    urls: Mapping[str, Sequence[str]]
    folder: Path
    advice: str
    advice_on_answers: str

    @property
    def is_complete(self) -> bool:
        """Whether the files were read, and are in the folder's list."""
        return set(self.names) <= recorded_sums(self.folder).keys()

    @property
    def has_files(self) -> bool:
        """Whether the folder has all files, which may have been copied there by hand."""
        return all((self.folder / name).is_file() for name in self.names)

    @property
    def names(self) -> list[str]:
        """The names of the files in the folder."""
        return [path.name for path in self._addresses(self.folder)]

    @property
    def files(self) -> Files:
        """The downloaded files."""
        return _files(self._paths(self.folder))

    @property
    def sources(self) -> str:
        """The first address of each file, for a message."""
        return listed([urls[0] for urls in self.urls.values()])

    @property
    def is_unchanged(self) -> bool:
        """Whether the files are those of the folder's list."""
        recorded = recorded_sums(self.folder)
        return self.has_files and all(sha256_of_file(self.folder / name) == recorded[name] for name in self.names)

    def make(self, read: Reader) -> None:
        """Downloads the files that are missing and reads all; one process at a time.

        A new folder gets the list, and its name when it is complete. A folder of the user gets the files that it lacks,
        and no list, so its files are read again at each use. If anything fails, what was downloaded is removed.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with only_writer(self.folder, must_wait=True) as partial:
            if self.is_complete:  # another process may have downloaded it meanwhile
                return
            if self.folder.is_dir() and any(self.folder.iterdir()):
                self._fill(self.folder, read)
                return
            partial.mkdir()
            self._fill(partial, read)
            write_sums(partial)
            move_into_place(partial, self.folder)

    def remove(self) -> None:
        """Removes the files and their list from this machine, and the folder if it has no others."""
        with only_writer(self.folder, must_wait=True):
            for name in (SUMS, *self.names):
                (self.folder / name).unlink(missing_ok=True)
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _fill(self, folder: Path, read: Reader) -> None:
        """Downloads the files that a folder lacks, and reads all; or raises, and adds nothing."""
        missing = [path for path in self._addresses(folder) if not path.exists()]
        is_download = len(missing) > 0
        stopping = saying_that_download_is_lost() if is_download else nullcontext()
        try:
            with stopping:
                for path, urls in self._addresses(folder).items():
                    self._fetch(urls, path)
                self._check(folder, read, is_download)
        except BaseException:
            for path in missing:
                path.unlink(missing_ok=True)
            raise

    def _fetch(self, urls: Sequence[str], path: Path) -> None:
        """Downloads one file, or says what to do."""
        try:
            fetch(urls, path)
        except ConversionError as error:
            is_answer = isinstance(error.__cause__, HTTPError | AnswerError)
            advice = self.advice_on_answers if is_answer else self.advice
            raise ConversionError(f"{error} {advice}") from None  # the message has the cause

    def _check(self, folder: Path, read: Reader, is_download: bool) -> None:
        """Raises ConversionError unless the files in a folder can be read as the model."""
        try:
            read(self.row, _files(self._paths(folder)))
        except ConversionError as error:
            reason = error.fact if isinstance(error, AnotherModelError) else str(error)
            reason = reason.replace(f"{folder}{os.sep}", "")
            if is_download:
                raise ConversionError(
                    f"what a server sent for {self.sources} is not this model, so nothing was kept: {reason} "
                    f"{self.advice_on_answers}"
                ) from error
            raise ConversionError(
                f"the files {listed(self.names)} in {folder}, which were copied there, are not this model: {reason} "
                f"Remove them to download them. {self.advice_on_answers}"
            ) from error

    def _paths(self, folder: Path) -> dict[str, Path]:
        """The paths of the files in a folder by their fields, under their published names, whatever the address."""
        return {part: folder / name_of(self.row.addresses.get(part, urls)[0]) for part, urls in self.urls.items()}

    def _addresses(self, folder: Path) -> dict[Path, Sequence[str]]:
        """The addresses of each file, by its path in a folder; an index of bilm-tf has its data beside it."""
        addresses: dict[Path, Sequence[str]] = {}
        for part, path in self._paths(folder).items():
            urls = self.urls[part]
            addresses[path] = urls
            if urls[0].endswith(INDEX_SUFFIX):
                data = [url.removesuffix(INDEX_SUFFIX) + DATA_SUFFIX for url in urls]
                addresses[folder / name_of(data[0])] = data
        return addresses


def find_download(name: str, options: DownloadOptions) -> Download:
    """The addresses and the folder of a published checkpoint; raises ConversionError if name or address is unknown."""
    if name not in options.published:
        raise ConversionError(unknown_name(name, options.published))
    row = options.published[name]
    advice = options.advice
    if advice is None:
        advice = f"If you have the files (where to get them: {row.source}), {options.remedy}."
    advice_on_answers = options.advice_on_answers
    if advice_on_answers is None:
        advice_on_answers = advice
    if _is_of_mirror(row, options):
        source = f"The address comes from {MIRROR_VARIABLE}; correct it or the server, and give the same command again."
        advice = f"{source} {advice}"
        advice_on_answers = f"{source} {advice_on_answers}"
    addresses = row.addresses if options.origin is None else row.below(options.origin)
    if not addresses:
        raise ConversionError(f"the published model {name} has no known address, so you must fetch its files. {advice}")
    urls = absolute(addresses, options.base_url)
    return Download(row, urls, options.folder or _folder(name, options), advice, advice_on_answers)


def _is_of_mirror(row: Published, options: DownloadOptions) -> bool:
    """Whether the files come from the mirror that the environment variable names."""
    if options.origin is not None or options.base_url is not None:
        return False
    return absolute(row.addresses) != absolute(row.addresses, BASE_URL)


def other_origin(name: str, options: DownloadOptions) -> str | None:
    """The address or the name of a checkpoint's files, if they are not from the published addresses; else None.

    A name and a password in an address, and what follows its path, are left out.
    """
    if options.is_local:
        return Path(str(options.origin)).resolve().name
    download = find_download(name, options)
    if download.urls == absolute(download.row.addresses, BASE_URL):
        return None
    address = urlsplit(download.urls["weights"][0])
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"


def _folder(name: str, options: DownloadOptions) -> Path:
    """The folder for a checkpoint's files; those from another address than the published ones have one of their own."""
    if options.origin is None or options.is_local:
        return CACHE / name
    digest = hashlib.sha256(options.origin.encode()).hexdigest()
    return CACHE / f"{name}-from-{digest[:16]}"


def download(name: str, read: Reader, options: DownloadOptions) -> Files:
    """Downloads a published checkpoint, with a progress bar, unless it was downloaded before.

    Args:
        name: a key of the table.
        read: reads the downloaded files, which are kept only if it raises no error.
        options: where the files come from, and where they are kept.

    Raises:
        ConversionError: if the name is unknown, a download fails, or a recorded checksum differs.
    """
    files = find_download(name, options)
    if options.is_local:
        return _files_of_user(Path(str(options.origin)), files.row, files.folder)
    if files.is_complete:
        remove_leftovers(files.folder)
    else:
        files.make(read)
    if files.is_complete and not files.is_unchanged:
        raise ConversionError(
            f"the files in {files.folder} are not those that its {SUMS} lists. To download them again, delete there "
            f"{listed([SUMS, *files.names])}."
        )
    return files.files


def _files(paths: Mapping[str, Path]) -> Files:
    """The files of a checkpoint from their paths by field."""
    others = {part: path for part, path in paths.items() if part != "weights"}
    return paths["weights"], others


def _files_of_user(path: Path, row: Published, folder: Path) -> Files:
    """The user's files as `download` returns them, with the checksums recorded in `folder` and beside them."""
    beside = path if path.is_dir() else path.parent
    files = list(files_in(path, "*").values()) if path.is_dir() else [path]
    for record in (folder, beside):
        _check_recorded(files, record)
    paths = {field: path / name_of(urls[0]) for field, urls in row.addresses.items()}
    if not paths or not all(file.is_file() for file in paths.values()):
        return path, {}
    return _files(paths)


def _check_recorded(files: Sequence[Path], folder: Path) -> None:
    """Raises ConversionError if the list of checksums in `folder` has another one for a file of this name."""
    sums = recorded_sums(folder)
    for file in files:
        if file.name in sums and sha256_of_file(file) != sums[file.name]:
            raise ConversionError(
                f"{file} has another checksum than {folder / SUMS} says. Get the file again or, if you mean this file, "
                "convert it without the published model's name."
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


def fetch(
    urls: Sequence[str],
    path: Path,
    advice: str = "",
    seconds: float = MOST_SILENCE,
    most_bytes: int = MOST_BYTES,
) -> Path:
    """Downloads one file, with a progress bar, unless it was downloaded before.

    Args:
        urls: its addresses, which are tried in turn; each that fails is printed, but the last is in the error.
        path: the file.
        advice: a sentence that tells the user what to do if all fail.
        seconds: how long a server may be silent.
        most_bytes: the most bytes that are taken, whatever a server announces or sends.

    Raises:
        ConversionError: if the download fails or breaks off; nothing is kept then; or as in `refuse_unreachable`.
    """
    if path.exists():
        remove_leftovers(path)
        return path
    refuse_unreachable(urls, advice)
    urls = reachable(urls)
    path.parent.mkdir(parents=True, exist_ok=True)
    for number, url in enumerate(urls, start=1):
        try:
            _download(url, path, seconds, most_bytes)
            break
        except (OSError, HTTPException) as error:
            if number == len(urls):
                raise ConversionError(f"cannot download {url}: {error}. {advice}".rstrip()) from error
            tqdm.write(f"Cannot download {url}: {error}. Trying the next address.", sys.stderr)
    return path


def reachable(urls: Sequence[str]) -> Sequence[str]:
    """The addresses of one file that may be asked: all, or if `HF_HUB_OFFLINE` is set those of this machine."""
    if not constants.HF_HUB_OFFLINE:
        return urls
    return [url for url in urls if urlsplit(url).hostname in THIS_MACHINE]


def refuse_unreachable(urls: Sequence[str], advice: str = "") -> None:
    """Raises ConversionError, with `advice`, if none of a file's addresses may be asked."""
    if not reachable(urls):
        problem = "HF_HUB_OFFLINE is set, so nothing is downloaded; unset it where there is a network."
        address = f"The file is at {urls[0]}"  # last, because it is long
        raise ConversionError(" ".join(filter(None, [problem, advice, address])))


def _download(url: str, path: Path, seconds: float, most_bytes: int) -> None:
    """Downloads a file from one address; raises OSError or HTTPException if that fails or the file is too large."""
    bar = {"desc": path.name, "unit": "B", "unit_scale": True, "unit_divisor": 1024}
    with (
        new_file(path) as partial,
        urllib.request.build_opener(SecureRedirects).open(url, timeout=seconds) as answer,
        partial.open("wb") as file,
    ):
        _check_answer(answer, path.name)
        size = _announced_size(answer)
        _refuse_larger(size, most_bytes)
        with tqdm.wrapattr(answer, "read", total=size or None, **bar) as reader:
            while block := reader.read(BLOCK_BYTES):
                file.write(block)
                _refuse_larger(file.tell(), most_bytes)
        if size and file.tell() != size:
            raise OSError(f"it ended after {file.tell():,} of {size:,} bytes")


class AnswerError(OSError):
    """A server answers, but is not about to send the file."""


def _refuse_larger(size: int, most_bytes: int) -> None:
    """Raises AnswerError if a server announces or has sent more than the most bytes of one file."""
    if size > most_bytes:
        raise AnswerError(f"it must send at most {most_bytes:,} bytes, but sends {size:,} or more")


def _check_answer(answer: Any, name: str) -> None:
    """Raises AnswerError if a server is not about to send the file of this name as it is."""
    if answer.status not in (None, HTTPStatus.OK):  # an address with file:// has none
        raise AnswerError(f"it must send the file with the status 200, but answered {answer.status} {answer.reason}")
    encoding = answer.headers.get("Content-Encoding", "identity")
    # Many servers call a .gz file itself an encoding.
    is_of_the_file = name.endswith(".gz") and encoding in ("gzip", "x-gzip")
    if encoding != "identity" and not is_of_the_file:
        raise AnswerError(f"it must send the file as it is, but sent it in the encoding {shortened(repr(encoding))}")


def _announced_size(answer: Any) -> int:
    """The size of the file that a server is about to send, 0 if it does not say; raises AnswerError for no number."""
    size = answer.headers.get("Content-Length", "0")
    if not re.fullmatch(r"[0-9]{1,18}", size):
        raise AnswerError(f"its Content-Length must be a number of bytes, but is {shortened(repr(size))}")
    return int(size)

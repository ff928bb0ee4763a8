"""The commands `elmo-hf convert`, `elmo-hf models` and `elmo-hf publish`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from .arguments import Language, Licence, SourceOfWeights, Splitter
from .errors import check_usage, refuse_alone, say, say_table
from .sharing import note_licence

# How many letters of a training text the list of models shows.
MOST_TEXT = 34
# What the library advises that has another name on the command line.
OPTIONS_OF_ADVICE = {
    "options": "--options FILE",
    "weights": "--weights FILE",
    "softmax": "--softmax FILE",
    "vocabulary": "--vocabulary FILE",
    "word_splitter": "--word-splitter",
    "folder_to_allennlp": "--to allennlp",
}
CONVERT_OWN_FILES = "elmo-hf convert --model NAME elmo-NAME --check --from FILE_OR_URL"


def convert(
    paths: Annotated[
        list[Path],
        Argument(
            metavar="[SOURCE] DEST", help="Folder, file or archive (not with --model or files), and the new folder."
        ),
    ],
    options: Annotated[
        Path | None, Option(metavar="FILE", help="AllenNLP's options file, if SOURCE lacks it, or with --weights.")
    ] = None,
    weights: Annotated[
        Path | None, Option(help="AllenNLP's hdf5 file, or a TensorFlow checkpoint's .index, in place of SOURCE.")
    ] = None,
    softmax: Annotated[Path | None, Option(help="The language models' softmax, an hdf5 file.")] = None,
    vocabulary: Annotated[Path | None, Option(help="Words of word input and of the softmax, one a line.")] = None,
    token_embeddings: Annotated[
        Path | None, Option(help="bilm-tf's dump of that vocabulary's vectors, in place of the character CNN.")
    ] = None,
    model: Annotated[
        str | None, Option(help="Download a published model, such as small (`elmo-hf models` lists all).")
    ] = None,
    origin: Annotated[
        str | None, Option("--from", metavar="FILE_OR_URL", help="With --model: its files, or another address of them.")
    ] = None,
    align: Annotated[
        list[str] | None,
        Option(metavar="LAYER=FILE", help="Multiply layer 0, 1... by the matrix in a .pth file; may be repeated."),
    ] = None,
    to: Annotated[
        Literal["hf", "allennlp"], Option(help="hf: a Hub folder. allennlp: options.json and weights.hdf5.")
    ] = "hf",
    word_splitter: Annotated[
        Splitter | None,
        Option(help="How raw text is split: ptb, English rules, or at blanks; default: by format and language."),
    ] = None,
    check: Annotated[
        bool,
        Option(
            "--check",
            help="Embed sentences before and after, print the largest difference; compare with published vectors.",
        ),
    ] = False,
    dtype: Annotated[Literal["float32", "bfloat16"], Option(help="Of the written weights.")] = "float32",
    licence: Licence = None,
    language: Language = None,
    source_of_weights: SourceOfWeights = None,
) -> None:
    """Convert a checkpoint to a Hub folder, or a Hub folder back.

    SOURCE is a folder, a file with its options beside it, or an archive (.zip, .tar.gz, .tar.bz2) of AllenNLP, bilm-tf
    (its TensorFlow checkpoints too), simple_elmo or ELMoForManyLangs, a TF-Hub module of an ELMo, a trained AllenNLP
    model with ELMo inside, or an LSTM language model with its vocabulary; the format is recognised. DEST becomes a
    complete Hub repository: config, weights, tokenizer, code and model card. If the checkpoint or the options have a
    softmax, DEST has the language models too.
    With `--to allennlp`, SOURCE is such a repository, or tiny, and DEST gets AllenNLP's files, equal bit for bit to
    those that were converted.
    """
    destination = paths[-1]
    source = paths[0] if len(paths) == 2 else None
    files = {"options": options, "softmax": softmax, "vocabulary": vocabulary, "token_embeddings": token_embeddings}
    origins = [name for name in (source, weights, model) if name is not None]
    lacks_options = weights is not None and options is None
    check_usage(
        len(paths) <= 2 and len(origins) == 1 and not lacks_options,
        "give SOURCE and DEST; with --options and --weights, or with --model, DEST alone.",
    )
    refuse_alone("--model NAME", model is not None, **{"from": origin})
    align_files = _align_files(align or [])
    others = [check, align, word_splitter, dtype != "float32", *files.values(), licence, language, source_of_weights]
    check_usage(
        to == "hf" or (source is not None and not any(others)),
        "--to allennlp takes SOURCE and DEST and no other option.",
    )
    if source is not None and to == "hf":
        refuse_published_name(source)
    from elmo_hf.conversion.contract import NamedFiles
    from elmo_hf.conversion.convert import FolderSettings, convert_source, folder_to_allennlp
    from elmo_hf.conversion.publish import convert_published
    from elmo_hf.conversion.published import DownloadOptions
    from elmo_hf.share.saved_card import card_labels

    labels = card_labels(licence, language or [], source_of_weights)
    if to == "allennlp":
        assert source is not None
        for note in folder_to_allennlp(source, destination):
            say(f"Note: {note}")
        *written, last = sorted(destination.iterdir())
        say(f"Wrote {', '.join(map(str, written))} and {last}.")
        return
    settings = FolderSettings(
        word_splitter=word_splitter,
        check=check,
        dtype=dtype,
        align_files=align_files,
        labels=labels,
    )
    with naming_options():
        if model is not None:
            remedy = "give their folder, their archive or its address with --from"
            download_options = DownloadOptions(origin=origin, remedy=remedy)
            difference = convert_published(model, destination, NamedFiles(**files), settings, download_options, say)
        else:
            checkpoint = source or weights
            assert checkpoint is not None
            difference = convert_source(checkpoint, destination, NamedFiles(**files), settings, say)
    if difference is not None:
        say(f"Largest difference from the checkpoint, all layers: {difference:.1e} (float32 against float64).")
    say(f"Wrote {destination}. Load it: AutoModel.from_pretrained({str(destination)!r}, trust_remote_code=True)")
    note_licence(licence, destination)


def refuse_published_name(source: Path) -> None:
    """Refuses a SOURCE that is no file but the name of a published model."""
    from elmo_hf.conversion.published import PUBLISHED

    is_name = str(source) in PUBLISHED and not source.exists()
    check_usage(not is_name, f"{source} is a published model; give --model {source} in place of SOURCE.")


@contextmanager
def naming_options() -> Iterator[None]:
    """Adds the command's options to an error that advises what the library calls otherwise."""
    from elmo_hf.conversion.refusals import ConversionError

    try:
        yield
    except ConversionError as error:
        meanings = [f"`{name}` is {option}" for name, option in OPTIONS_OF_ADVICE.items() if f"`{name}`" in str(error)]
        if meanings:
            error.args = (f"{error} In this command, {', '.join(meanings)}.",)
        raise


def _align_files(align: list[str]) -> dict[int, Path]:
    """The file of the matrix of each layer, from values of --align."""
    files = {}
    for value in align:
        layer, _, file = value.partition("=")
        is_right = layer.isdecimal() and file != "" and int(layer) not in files
        check_usage(is_right, "--align takes LAYER=FILE, such as 1=en_best_mapping.pth, once for each layer.")
        files[int(layer)] = Path(file)
    return files


def models(
    name: Annotated[str | None, Argument(metavar="[NAME]", help="Show all that is known of this model.")] = None,
    remove: Annotated[
        str | None, Option(metavar="NAME", help="Remove the folder of this model, which its next use makes again.")
    ] = None,
) -> None:
    """List the published models.

    Each name is a model for every command: its first use downloads, converts and checks it, and keeps a folder in the
    Hub's cache. The size is the number of LSTM cells and the width of the projection in each direction; `here` is the
    size of a folder that is kept. `-` means not known or not here, `by hand` that you must fetch the files from the
    source. Licences are those that the authors name.
    """
    check_usage(name is None or remove is None, "give NAME or --remove NAME.")
    from elmo_hf.conversion.kept_models import KeptModels

    cache = KeptModels()
    if remove is not None:
        say(f"Removed {cache.remove(remove)}.")
    elif name is not None:
        say_table(cache.facts(name))
    else:
        rows = [("name", "lang", "size", "licence", "here", "trained on")]
        for model, published in cache.published.items():
            text = shortened_text(published.text)
            size = published.size or "-"
            rows.append((model, published.language, size, published.licence, cache.size_on_disk(model), text))
        say_table(rows)
        say("`elmo-hf models NAME` shows the source, the addresses and the folder of one.")


def shortened_text(text: str) -> str:
    """The beginning of a text, for a table that fits into 100 columns."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."


def publish(
    organisation: Annotated[str, Argument(metavar="ORGANISATION", help="Your organisation or name on the Hub.")],
    names: Annotated[
        list[str] | None,
        Argument(metavar="[NAME]...", help="Published models; default: all with an address and a licence."),
    ] = None,
    private: Annotated[bool, Option("--private", help="Make new repositories private.")] = False,
) -> None:
    """Convert published models and share them on the Hub.

    One after the other is downloaded, converted to the folder elmo-NAME with `--check`, and pushed to
    ORGANISATION/elmo-NAME as by `elmo-hf push`. A model that fails does not stop the others; a table at the end lists
    what was done. The same command goes on: what was converted or pushed before is left as it is.
    """
    from elmo_hf.conversion.publish import COLUMNS, publish_model
    from elmo_hf.conversion.published import PUBLISHED, UNKNOWN, DownloadOptions

    if not names:
        names = [name for name, published in PUBLISHED.items() if published.weights and published.licence != UNKNOWN]
    options = DownloadOptions(remedy=f"run `{CONVERT_OWN_FILES}` first")
    outcomes = [publish_model(name, organisation, Path(), private, options, say) for name in names]
    rows = [tuple(outcome.values()) for outcome in outcomes]
    say_table([COLUMNS, *rows])
    failed = [outcome["name"] for outcome in outcomes if outcome["pushed"] == "-"]
    if failed:
        raise ValueError(
            f"not published: {', '.join(failed)}. The same command tries them again. If you have the files of one from "
            f"elsewhere, run `{CONVERT_OWN_FILES}` first."
        )

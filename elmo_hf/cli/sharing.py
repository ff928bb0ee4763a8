"""The commands about saved models: `elmo-hf info`, `elmo-hf card`, `elmo-hf export` and `elmo-hf push`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..folder.model_names import refuse_unknown
from ..text.escapes import printable
from .arguments import Language, Licence, Model, SourceOfWeights
from .errors import counted, say, say_table

# The faults that one line names.
MOST_FAULTS = 9

Folder = Annotated[Path, Argument(metavar="FOLDER", help="A folder that `elmo-hf convert` or Python saved.")]


def refuse_published_name(folder: str | Path) -> None:
    """Refuses the name of a published model in the place of a folder, and says how to get its folder.

    Raises:
        ValueError: if there is no such folder, but a published model of this name.
    """
    from elmo_hf.folder.model_names import ModelNames

    name = str(folder)
    if not Path(folder).exists() and name in ModelNames.published():
        raise ValueError(
            f"there is no folder {name}; {name} is the name of a published model. `elmo-hf models {name}` shows its "
            f"folder if it was used here before, and `elmo-hf convert --model {name} elmo-{name}` writes a new one; "
            "give the folder."
        )


def some_of(faults: Sequence[str]) -> str:
    """The first faults, and how many there are beside them."""
    named = "; ".join(faults[:MOST_FAULTS])
    return named if len(faults) <= MOST_FAULTS else f"{named}; and {len(faults) - MOST_FAULTS:,} more"


def info(model: Model) -> None:
    """Describe MODEL and its uses.

    Sizes, layers, mixes, softmax, tokenizer, source, licence, the SHA-256 of its weights as SHA256SUMS lists them, and
    the commands that can use it. Weights are neither read nor downloaded; of a published model that is not here yet,
    what is known without them is shown.
    """
    refuse_unknown(model)
    from elmo_hf.folder.model_names import is_missing
    from elmo_hf.share.model_info import describe

    if is_missing(model):
        _say_what_is_known(model)
    else:
        say_table(describe(model))


def _say_what_is_known(name: str) -> None:
    """Prints what is known of a published model that is not here, and what brings it here."""
    from elmo_hf.folder.model_names import ModelNames

    published = ModelNames.published()
    say_table(published.facts(name))
    if published.has_address(name):
        say(f"Not here yet: its first use downloads it, as does `elmo-hf convert --model {name} NEW_FOLDER`.")
    else:
        say(f"Not here yet: fetch its files, then give `elmo-hf convert --model {name} NEW_FOLDER --from FILES`.")


def check(
    folder: Annotated[
        str,
        Argument(metavar="FOLDER", help="A model, run, checkpoint, download or shards, also in a store (s3://...)."),
    ],
) -> None:
    """Check that the files of FOLDER are as they were written.

    Each file that decides the numbers of a model, and all files of a checkpoint or a download, have their checksums in
    SHA256SUMS, which `sha256sum -c` can read. The shards of `elmo-hf embed` have theirs in `_index.jsonl`, and that
    file in `_index/SHA256SUMS`. A file that is missing, changed or not listed is named, and the exit code is then 1.
    """
    from elmo_hf.embedding.shard_files import compare_shards, holds_shards
    from elmo_hf.embedding.stores import Folder as AnyFolder
    from elmo_hf.embedding.stores import is_url
    from elmo_hf.folder.listed_files import compare_with_list

    refuse_published_name(folder)
    if not is_url(folder) and not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}. Only a folder has a list of checksums, a single file has none.")
    shards = AnyFolder(folder)
    if holds_shards(shards):
        comparison = compare_shards(shards)
    elif is_url(folder):
        raise ValueError(f"{folder} has no shards, which alone are compared in a store; copy a model to this disk.")
    else:
        comparison = compare_with_list(Path(folder))
    if comparison.faults:
        raise ValueError(f"{folder} is not as it was written: {some_of(comparison.faults)}.")
    say(f"Checked {counted(comparison.count, 'file')} of {folder}: nothing changed since it was written.")
    for note in comparison.notes:
        say(note)


def env() -> None:
    """Show versions and hardware that affect speed.

    Versions, processor, threads, GPU, whether bfloat16 is fast, and whether large weights can have oneDNN's layout.
    """
    from elmo_hf.share.environment import describe_environment

    say_table(describe_environment())


def card(folder: Folder, licence: Licence = None, language: Language = None, source: SourceOfWeights = None) -> None:
    """Write the model card of FOLDER, or change it.

    A folder without a card, or with a draft of transformers' Trainer, gets a new card: sizes, snippet, limits, the
    draft's run, and the values of the options. An existing card keeps its text; the options change its metadata and its
    section about licence, language and source. For a new card, delete README.md first.
    """
    from elmo_hf.folder.loading import open_folder
    from elmo_hf.share.model_info import new_card
    from elmo_hf.share.saved_card import CARD, card_labels, is_draft, label_card, read_card, write_card

    path = folder / CARD
    refuse_published_name(folder)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} to write {CARD} in.")
    labels = card_labels(licence, language or [], source)
    open_folder(folder)
    if path.exists() and not is_draft(read_card(path)):
        label_card(path, labels)
    else:
        write_card(path, new_card(folder, labels))
    metadata = read_card(path).data
    say(f"Wrote {path}.")
    note_licence(licence, folder)
    options = {"license": "--license", "language": "--language"}
    missing = [option for name, option in options.items() if not metadata.get(name)]
    if missing:
        say(f"The Hub asks for more: give {' and '.join(missing)}.")


def note_licence(licence: str | None, folder: Path) -> None:
    """Prints a note to standard error if the licence in a folder's card may be a typing error."""
    from elmo_hf.share.saved_card import similar_licence

    similar = None if licence is None else similar_licence(licence)
    if similar is not None:
        say(
            f"Note: {licence} is not a licence that the Hub names; if you mean {similar}, give "
            f"`elmo-hf card {folder} --license {similar}`.",
            is_error=True,
        )


def export(
    model: Model,
    output: Annotated[Path, Argument(metavar="OUT", help="A new file, .onnx or .pt2 (torch.export).")],
    state: Annotated[bool, Option("--state", help="Make the state of the LSTMs an input and an output.")] = False,
) -> None:
    """Write MODEL as an ONNX graph, or as a program of torch.export.

    The file runs without this package and takes any number of texts and words. A task's model is written with its head,
    any other model without one. The file is kept only if its outputs equal the model's.
    """
    refuse_unknown(model)
    from elmo_hf.share.export import NamedTensors, check_output, export_model, load_for_export

    check_output(output)
    difference = export_model(NamedTensors(load_for_export(model, state), state), output)
    say(f"Largest difference from the model, all outputs: {difference:.1e} (float32).")
    say(f"Wrote {output}.")


def push(
    folder: Folder,
    name: Annotated[str, Argument(metavar="ORG/NAME", help="The Hub repository; a new one is created.")],
    private: Annotated[bool, Option("--private", help="If the repository is new, make it private.")] = False,
    include: Annotated[
        list[str] | None, Option(metavar="PATTERN", help="Send these files too, such as LICENSE or 'docs/*'.")
    ] = None,
) -> None:
    """Share the model in FOLDER on the Hub, in one commit.

    Weights, config, tokenizer, code, card, its pictures and scores are sent; other files in FOLDER are listed and not
    sent.
    You need a token with write access: run `hf auth login` once, or set HF_TOKEN. If FOLDER lacks a file that loading
    it elsewhere needs, nothing is sent. The card is sent with the repository's name. If an upload breaks off, give the
    same command again.
    """
    refuse_published_name(folder)
    from elmo_hf.share.push import push_folder

    pushed, left_out, line = push_folder(folder, name, private=private, include=include or [])
    say(f"Wrote {pushed.repo_url}, commit {pushed.oid}.")
    if left_out:
        say(f"Left out, unless --include names it: {', '.join(map(printable, left_out))}.")
    say("This line loads it and runs it:")
    say(line)

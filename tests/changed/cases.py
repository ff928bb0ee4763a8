"""Makes the cases and judges them; `python -m tests.changed` and `test_changed.py` run them."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from elmo_hf.disk.checksums import SUMS
from elmo_hf.embedding.shards import JOINED, identity_of
from tests.faults.runs import Outcome, at_change, die
from tests.helpers.archives import read_files

from .changes import FILE_CHANGES, YEAR, Target, copy, delete
from .elsewhere import CACHE, HUB, TOY
from .shelf import PROTOCOL
from .surroundings import Surroundings, interrupt
from .things import THINGS, Thing, copy_inputs, inputs_of, make_inputs

EQUAL, REFUSED, NAMED, UNSEEN, DEFECT = "equal", "refused", "named by check", "not seen by check", "DEFECT"
FINISHED = 0  # the moment of a command that was not interrupted
# How many of the cases of a thing with a list are cases of `check`, and of the others, how many change a file.
SHARE_OF_CHECKS, SHARE_OF_FILES, SHARE_OF_INPUTS, SHARE_OF_GENTLE_STOPS = 0.25, 0.75, 0.35, 0.3
# What `elmo-hf check` cannot see: expressions for names in a thing, and for names of changes.
NOT_SEEN = (
    (r".*", r"date"),  # the content is the same
    (r"[^/]+", r"duplicate to a user's name"),  # in a checkpoint it is seen
    (r"(_index/)?SHA256SUMS", r"duplicate( to a user's name)?"),  # nothing reads it
    (r"README\.md", r".*"),  # a card may be edited
    (r"(log\.json|curve\.png|run\.json|runs(/.*)?)", r".*"),  # these decide no number of the model
    (r"_index/SHA256SUMS", r"remove|rename"),  # as in folders of an earlier version
    (r"_index", r"put an older one"),  # only without SHA256SUMS: entries are never written again
    (r"\.|\.\.(/\.\.)*", r"put a twin"),  # a whole folder of another model
    (r"checkpoint-\d+", r"remove|rename|duplicate"),  # as a whole; the copy is complete, too
)
# What a killed process leaves where a model is saved, and a later one removes when it is old.
LEFT_FOR_A_WHILE = re.compile(r"\.[^/]+\.\d+\.partial")
# Keys of a log that hold times.
TIMES = ("runtime", "per_second")


class Judgement(NamedTuple):
    """How a case ended: one of the five kinds above, the change, and what the command said."""

    kind: str
    thing: str
    change: str
    detail: str


class Change(NamedTuple):
    """What was changed before the command was given again.

    Attributes:
        name: what was done, and to what.
        surroundings: in which the command is given.
        path: the file or folder that was changed, or that of the case.
        touched: the files and folders that were changed.
        words: of which a refusal has one.
        is_of_input: whether the command's own input is another.
    """

    name: str
    surroundings: Surroundings
    path: Path
    touched: list[Path]
    words: list[str]
    is_of_input: bool


class Workshop:
    """Makes the inputs, the interrupted work and the undisturbed results of things, each once.

    Attributes:
        root: the folder in which all this is, and the cases too; what an earlier workshop made there is used again.
    """

    def __init__(self, root: Path) -> None:
        """Makes the inputs and those of the twin."""
        self.root = root
        for name in ("first", "twin"):
            if not (root / "inputs" / name).exists():
                make_inputs(root / "inputs" / name, is_twin=name == "twin")

    def new_folder(self, name: str, thing: Thing, inputs: Path) -> Path:
        """A folder with the inputs of a thing."""
        folder = self.root / name
        copy_inputs(inputs, thing, folder)
        (folder / "work").mkdir()
        if thing.start:
            shutil.copytree(self.root / "inputs" / "first" / thing.start, folder / "work" / "out")
        return folder

    def undisturbed(self, name: str) -> Path:
        """The folder of the undisturbed command of a thing."""
        folder = self.root / f"{name}, undisturbed"
        if not folder.exists():
            self.new_folder(folder.name, THINGS[name], self.root / "inputs" / "first")
            with self._counts(name).open("wb", buffering=0) as file:
                outcome = Surroundings.of(THINGS[name]).run(folder, at_change(lambda: file.write(b".")))
            assert outcome.code == 0, outcome.output[-3000:]
        return folder

    def num_changes(self, name: str) -> int:
        """How many changes of files the undisturbed command makes."""
        self.undisturbed(name)
        return self._counts(name).stat().st_size

    def _counts(self, name: str) -> Path:
        """A file with one byte for each change of a file by the undisturbed command."""
        return self.root / f"{name}, changes"

    def stopped(self, name: str, moment: int, stop: Callable[[], None], inputs: str = "first") -> Path:
        """The folder of a command that stopped at a moment; at `FINISHED` it ended."""
        if (moment, inputs) == (FINISHED, "first"):
            return self.undisturbed(name)
        folder = self.root / f"{name}, {inputs}, {moment}, {stop.__name__}"
        if not folder.exists():
            self.new_folder(folder.name, THINGS[name], self.root / "inputs" / inputs)
            arrange = (lambda: None) if moment == FINISHED else at_change(stop, moment)
            Surroundings.of(THINGS[name]).run(folder, arrange)
        return folder


def run_case(workshop: Workshop, seed: str, number: int, names: list[str]) -> Judgement:
    """Runs the case of a number, which changes one of the things of these names."""
    generator = random.Random(f"{seed} {number}")
    (name,) = generator.choices(names, [THINGS[thing].weight for thing in names])
    folder = workshop.root / f"case {number}"
    if THINGS[name].has_list and generator.random() < SHARE_OF_CHECKS:
        judgement = judge_check(workshop, name, folder, generator)
    else:
        judgement = judge_second_run(workshop, name, folder, generator)
    if judgement.kind != DEFECT:
        for path in workshop.root.glob(f"case {number}*"):
            delete(path)
    return judgement


def judge_second_run(workshop: Workshop, name: str, folder: Path, generator: random.Random) -> Judgement:
    """Gives a command, stops it, changes one thing, and gives it again."""
    thing = THINGS[name]
    moment = generator.randint(0, workshop.num_changes(name))
    stop = interrupt if generator.random() < SHARE_OF_GENTLE_STOPS else die
    stopped = workshop.stopped(name, moment, stop)
    copy_case(stopped, folder)
    before = workshop.root / f"{folder.name}, before"
    copy_case(stopped, before)
    if generator.random() < SHARE_OF_FILES:
        change = change_a_file(workshop, name, folder, (moment, stop), generator)
    else:
        change = change_surroundings(thing, generator)
    where = f"{change.name}, at {moment} ({stop.__name__})"
    outcome = change.surroundings.run(folder)
    if outcome.code == 0:
        fault = fault_of_result(workshop, thing, name, folder, change, outcome)
        if fault and thing.needs_check and change.touched:
            return judge_by_check(name, folder, change)
        return Judgement(DEFECT if fault else EQUAL, name, where, fault or last_line(outcome))
    if not outcome.is_refused:
        return Judgement(DEFECT, name, where, outcome.output[-3000:])
    line = error_of(outcome)
    if not any(word in line for word in change.words):
        return Judgement(DEFECT, name, where, f"names none of {change.words}: {line}")
    undo(change, folder, before)
    again = Surroundings.of(thing).run(folder)
    was_finished = comparable(before / "work").items() >= comparable(workshop.undisturbed(name) / "work").items()
    if again.code != 0 and not (was_finished and again.is_refused):
        return Judgement(DEFECT, name, where, f"after {line!r} and undoing the change: {again.output[-2000:]}")
    fault = difference(thing, folder, workshop.undisturbed(name), [])
    if fault:
        return Judgement(DEFECT, name, where, f"after {line!r} and undoing the change: {fault}")
    return Judgement(REFUSED, name, where, line)


def judge_check(workshop: Workshop, name: str, folder: Path, generator: random.Random) -> Judgement:
    """Changes one file or folder of a finished thing, and runs `elmo-hf check`."""
    thing = THINGS[name]
    copy_case(workshop.undisturbed(name), folder)
    result = folder / thing.result
    what, path, touched = change_one(workshop, name, folder, sorted(result.rglob("*")), (FINISHED, die), generator)
    return judge_by_check(name, folder, Change(what, Surroundings.of(thing), path, touched, [], False))


def judge_by_check(name: str, folder: Path, change: Change) -> Judgement:
    """Judges what `elmo-hf check` says of a finished thing after a change."""
    thing = THINGS[name]
    address = f"{PROTOCOL}://{thing.result}" if f"-o {PROTOCOL}://" in thing.command else thing.result
    outcome = Surroundings(["check", address]).run(folder)
    if outcome.is_refused:
        line = last_line(outcome)
        is_list = change.path.name == SUMS  # of which a line may name another file
        is_named = is_list or any(changed.name in line for changed in change.touched)
        return Judgement(NAMED if is_named else DEFECT, name, change.name, line)
    inner = os.path.relpath(change.path, folder / thing.result)
    kind = change.name.partition(": ")[0]
    if kind == "duplicate" and "-copy" in change.touched[0].name:
        kind += " to a user's name"
    may_be_unseen = any(re.fullmatch(names, inner) and re.fullmatch(changes, kind) for names, changes in NOT_SEEN)
    is_unseen = outcome.code == 0 and may_be_unseen
    return Judgement(UNSEEN if is_unseen else DEFECT, name, change.name, outcome.output[-2000:])


def copy_case(source: Path, folder: Path) -> None:
    """Copies the folder of a case."""
    shutil.copytree(source, folder)
    renew_marks(source, folder)


def renew_marks(source: Path, folder: Path) -> None:
    """Names copies in the marks of shards: a mark names the file joined from them by its number on the disk."""
    for mark in source.glob(f"work/*.partial/{JOINED}"):
        file = mark.parent.with_suffix("")
        copied_mark, copied_file = folder / mark.relative_to(source), folder / file.relative_to(source)
        is_of_file = file.is_file() and mark.read_text(encoding="ascii") == identity_of(file)
        if is_of_file and copied_mark.is_file() and copied_file.is_file():
            copied_mark.write_text(identity_of(copied_file), encoding="ascii")


def change_one(
    workshop: Workshop,
    name: str,
    folder: Path,
    paths: list[Path],
    stopped: tuple[int, Callable[[], None]],
    generator: random.Random,
) -> tuple[str, Path, list[Path]]:
    """Changes one of some files and folders of a case; returns what was done, to what, and what was touched."""
    moment, stop = stopped
    touched: list[Path] = []
    while not touched:  # some changes make no sense for some files
        path = generator.choice(paths)
        inner = path.relative_to(folder)
        kind = generator.choice([*FILE_CHANGES])
        twin = older = Path("/no such file")
        if kind == "put a twin":
            twin = workshop.stopped(name, moment, stop, "twin") / inner
        if kind == "put an older one":
            older = older_version(workshop, name, inner, moment, generator)
        touched = FILE_CHANGES[kind](Target(path, twin, older, generator))
    return f"{kind}: {inner}", path, touched


def older_version(workshop: Workshop, name: str, inner: Path, moment: int, generator: random.Random) -> Path:
    """What stood in the place of a file or folder earlier: before a moment of the work, or another input."""
    if inner.parts[0] == "in":
        return workshop.root / "inputs" / "twin" / inner.relative_to("in")
    last = moment or workshop.num_changes(name)
    return workshop.stopped(name, generator.randint(1, last), die) / inner


def change_a_file(
    workshop: Workshop,
    name: str,
    folder: Path,
    stopped: tuple[int, Callable[[], None]],
    generator: random.Random,
) -> Change:
    """Changes a file or folder that the command read or wrote."""
    thing = THINGS[name]
    inputs, work = inputs_of(thing, folder), work_of(thing, folder)
    is_of_input = not work or (len(inputs) > 0 and generator.random() < SHARE_OF_INPUTS)
    what, path, touched = change_one(workshop, name, folder, inputs if is_of_input else work, stopped, generator)
    words = []
    for changed in [path, *touched]:  # a swap touches two files
        words += [part for part in changed.relative_to(folder).parts if part not in ("in", "work")]
    words += ["training text", "held-out text"]  # of `pretrain`, each of any number of files
    words.append(Path(thing.result).name)
    if thing.reads:
        words.append(TOY)
    # The twin of a whole download with its list is another published model.
    downloads = folder / "work" / CACHE
    if what.startswith("put a twin") and path in (downloads, downloads / TOY):
        is_of_input = True
    return Change(what, Surroundings.of(thing), path, touched, words, is_of_input or thing.start != "")


def work_of(thing: Thing, folder: Path) -> list[Path]:
    """The files and folders that a case may change in the work: not on the Hub, and no text that a command adds to."""
    paths = []
    for path in sorted((folder / "work").rglob("*")):
        is_on_hub = HUB in path.relative_to(folder).parts
        is_text = thing.start != "" and path in (folder / thing.result, folder / "work" / "out")
        if not is_on_hub and not is_text:
            paths.append(path)
    return paths


def with_option(command: list[str], option: str) -> list[str]:
    """A command with an option and its value, or a flag, which replaces the one of this name that it has."""
    name, *values = option.split()
    if name not in command:
        return [*command, name, *values]
    place = command.index(name)
    return [*command[:place], name, *values, *command[place + 1 + len(values) :]]


def change_surroundings(thing: Thing, generator: random.Random) -> Change:
    """Changes an argument, the working folder, the clock or the number of processes."""
    surroundings = Surroundings.of(thing)
    kinds = ["argument"] * 6 if thing.options else []
    kinds.append("clock")
    if thing.place == ".":
        kinds.append("working folder")
    if thing.shares_work:
        kinds.append("processes")
    kind = generator.choice(kinds)
    words = [Path(thing.result).name]
    is_of_input = kind in ("argument", "working folder")
    if kind == "argument":
        option = generator.choice(thing.options)
        words += option.removeprefix("--").replace("-", "_").split()
        kind = f"argument: {option}"
        surroundings = surroundings._replace(command=with_option(surroundings.command, option))
    elif kind == "working folder":
        surroundings = surroundings._replace(place="elsewhere")
    elif kind == "clock":
        surroundings = surroundings._replace(seconds=generator.choice([-YEAR, YEAR]))
    else:
        surroundings = surroundings._replace(num_processes=2)
        words.append("world_size")
        is_of_input = thing.command.startswith("pretrain")  # whose processes draw other random numbers
    return Change(kind, surroundings, Path(), [], words, is_of_input)


def fault_of_result(workshop: Workshop, thing: Thing, name: str, folder: Path, change: Change, outcome: Outcome) -> str:
    """What is wrong after a command that ended well; "" if nothing is."""
    expected = workshop.undisturbed(name)
    is_downloaded = thing.reads != "" and difference(thing, folder, expected, change.touched) == ""
    if change.is_of_input and not is_downloaded:
        expected = workshop.new_folder(f"{folder.name}, fresh", thing, folder / "in")
        repeat(change, folder, expected)
        fresh = change.surroundings.run(expected)
        if fresh.code != 0:
            return f"ended well, but is refused in a new folder: {fresh.output[-1500:]}"
    new = [*change.touched]
    if thing.holds_others:
        new += entries_in(workshop.undisturbed(name), thing, folder)
    # A resumed run may log at other steps than it did before; the losses that it logged there stay.
    fault = difference(thing, folder, expected, new, has_losses="--logging-steps 1" not in change.name)
    if not fault and change.surroundings.command == thing.command.split():
        fault = thing.measure(outcome.output, folder)
    if not fault and thing.command.startswith("pretrain"):
        fault = fault_of_perplexities(change.surroundings.command, folder, outcome.output)
    return fault


def entries_in(other: Path, thing: Thing, folder: Path) -> list[Path]:
    """The places in a case of what the result of another case holds."""
    if not (other / thing.result).is_dir():
        return []
    return [folder / path.relative_to(other) for path in (other / thing.result).iterdir()]


def difference(thing: Thing, folder: Path, expected: Path, new_paths: list[Path], has_losses: bool = True) -> str:
    """In what the work of a case differs from the expected one, apart from new names, such as those of a change."""
    if not (folder / thing.result).exists():
        return f"{thing.result} is missing"
    there, wanted = comparable(folder / "work"), comparable(expected / "work")
    if not has_losses:
        there, wanted = without_losses(there), without_losses(wanted)
    new = [path.relative_to(folder / "work").as_posix() for path in new_paths if path.is_relative_to(folder / "work")]
    for name in sorted(there.keys() - wanted.keys()):
        if not any(name == path or name.startswith(f"{path}/") for path in new):
            return f"{name} is left over"
    result = Path(thing.result).relative_to("work")
    # The command may leave as it is what the case changed outside the result, if it did not need it, and the user's.
    left = [path for path in new if thing.reads and not Path(path).is_relative_to(result)]
    left += [path for path in new if Path(path).name in thing.leaves]
    for name, data in wanted.items():
        if any(name == path or name.startswith(f"{path}/") for path in left):
            continue
        if name not in there:
            return f"{name} is missing"
        if there[name] != data:
            return f"{name} differs: {there[name][:300]!r}, expected {data[:300]!r}"
    return ""


def comparable(work: Path) -> dict[str, bytes]:
    """The files of some work without those that differ from run to run, and without the times in others."""
    files = {}
    for name, data in read_files(work).items():
        inner = name.partition("/")[2]
        if LEFT_FOR_A_WHILE.fullmatch(inner):
            continue
        if inner.startswith(("runs/", "checkpoint-")) or inner in ("curve.png", "training_args.bin"):
            continue
        if inner.endswith("README.md"):
            data = without_place(data, work.parent.parent)
        if inner == "log.json":
            data = json.dumps([without_times(entry) for entry in json.loads(data)]).encode()
        files[name] = data
    return files


def without_losses(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a run of pretraining without the training losses in the log and in the first column of the card."""
    log = [entry for entry in json.loads(files["out/log.json"]) if "loss" not in entry]
    card = re.sub(rb"(?m)^\| [^|\n]+ (?=\| [\d.]+ \| \d+ \|)", b"| ", files["out/README.md"])
    return files | {"out/log.json": json.dumps(log).encode(), "out/README.md": card}


def without_place(card: bytes, root: Path) -> bytes:
    """A card without the folder of its case below `root`, or of the case that it was copied from."""
    for place in (quote(str(root)), str(root)):
        card = re.sub(re.escape(place.encode()) + rb"/[^/\n]*", b"FOLDER", card)
    return card


def without_times(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of a log without how long something took."""
    return {key: value for key, value in entry.items() if not key.endswith(TIMES)}


def fault_of_perplexities(command: list[str], folder: Path, printed: str) -> str:
    """What `elmo-hf score` of the written model does not agree with, in what was printed and in the card."""
    if "--held-out" not in command:
        return ""
    held_out = command[len(command) - command[::-1].index("--held-out")]
    scored = Surroundings(["score", "work/out", held_out]).run(folder)
    lines = re.findall(r"^perplexity.*mean +[\d.]+", scored.output, re.MULTILINE)
    missing = [line for line in lines if line not in printed]
    if scored.code != 0 or len(lines) != 2 or missing:
        return f"measured {lines}, printed {printed[-600:]}"
    mean = float(lines[0].split()[-1])
    said = re.search(r"\| Perplexity \| ([\d.]+) \|", (folder / "work/out/README.md").read_text(encoding="utf-8"))
    if said is None or abs(float(said[1]) - mean) > 0.01 * mean:
        return f"the card has {said}, measured {mean}"
    return ""


def undo(change: Change, folder: Path, before: Path) -> None:
    """Puts back what a change touched."""
    for path in change.touched:
        delete(path)
        original = before / path.relative_to(folder)
        if original.exists() and path.parent.exists():  # what a killed process left, a refusal may remove
            copy(original, path)
    renew_marks(before, folder)


def repeat(change: Change, folder: Path, other: Path) -> None:
    """Makes the change of a case in another folder too."""
    for path in change.touched:
        place = other / path.relative_to(folder)
        delete(place)
        if path.exists():
            copy(path, place)


def error_of(outcome: Outcome) -> str:
    """The line of a refusal."""
    return next(line for line in outcome.output.splitlines() if line.startswith("Error: "))


def last_line(outcome: Outcome) -> str:
    """The line of a refusal, or the last line that was printed."""
    return error_of(outcome) if outcome.is_refused else outcome.output.strip().rpartition("\n")[2]

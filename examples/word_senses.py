"""Which sense does a word have in its sentence? ELMo vectors, against the commonest sense and random weights.

    python examples/word_senses.py                # tiny; or a folder, a Hub name, or a short name
    python examples/word_senses.py tiny usages.csv
    python examples/word_senses.py tiny bank.csv --word bank --column sense=label

A file of your own is a .csv or .tsv with the columns `word`, `sense` and `sentence`; `--word` takes the place of the
column `word` if all sentences have the same word. Each sentence has its word once, in upper or lower case; another
form, such as a plural, is another word. Each sense has two usages or more, each word two senses or more.

Without a file, `word_senses.csv` names the senses of 18 words, such as *bank*, in sentences of `space/sentences.txt`;
its column `line` counts from 1. For each seed half of the usages of each sense are known. Any other usage gets the
sense, among those of its word, whose centre is nearest:

    c_s = mean of h over the known usages of sense s,    s(h) = argmax_s cos(h, c_s)

There are two controls. One gives each word its commonest sense of all usages. The other has the same architecture with
new random weights for each seed. Scores are shares of right answers.

Glossary: h the ELMo vector `(2P)` of a word in its sentence, s a sense, c_s its centre, U usages.
"""

import csv
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from data_errors import DataError
from named_columns import parse_columns
from seeds import interval
from torch import Tensor

from elmo_hf import ElmoModel, ElmoTokenizer, load
from elmo_hf.cli.arguments import Encoding, Model
from elmo_hf.cli.errors import Command
from elmo_hf.text.opened_files import opened, suffix_of
from elmo_hf.text.tables import table_rows
from elmo_hf.text.text_files import TextFile

FOLDER = Path(__file__).parent
SEEDS = 5
BATCH_SIZE = 128  # usages whose sentences a model reads at once
COLUMNS = ("word", "sense", "sentence")
SUFFIXES = (".csv", ".tsv")

app = typer.Typer(add_completion=False)


class Usage(NamedTuple):
    """A word in a sentence, and its sense there."""

    word: str
    sense: str
    sentence: str


class Scores(NamedTuple):
    """The shares of right answers for one seed, and how many answers there are."""

    commonest: float
    random: float
    trained: float
    num_answers: int


def read_usages() -> list[Usage]:
    """The usages of `word_senses.csv`."""
    sentences = (FOLDER / "space" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    with (FOLDER / "word_senses.csv").open(encoding="utf-8", newline="") as file:
        return [Usage(row["word"], row["sense"], sentences[int(row["line"]) - 1]) for row in csv.DictReader(file)]


def read_own_usages(
    path: Path, tokenizer: ElmoTokenizer, columns: dict[str, str], word: str | None = None, encoding: str = "utf-8"
) -> list[Usage]:
    """The usages of a user's own table.

    Args:
        path: a .csv or .tsv file whose first line names its columns.
        tokenizer: splits the sentences into words.
        columns: the names of columns that are not called `word`, `sense` and `sentence`.
        word: the word of all sentences; None: the column `word` has it.
        encoding: the encoding of the file.

    Raises:
        DataError: if a column is missing, or a word has too few senses, or a sense too few usages.
        OSError: if there is no such file.
        ValueError: if a cell is empty, or a sentence does not have its word once; the message names the line.
    """
    if suffix_of(path) not in SUFFIXES:
        raise DataError(f"{path} must end in {' or '.join(SUFFIXES)}; rename or convert it.")
    usages = []
    with opened(path) as file:
        text = TextFile(file, encoding)
        for number, row in table_rows(text, ()):
            cells = _named_cells(path, row, columns, word)
            empty = [name for name in COLUMNS if not cells[name].strip()]
            if empty:
                raise text.fault(f"the {empty[0]} is missing.", number)
            usage = Usage(cells["word"].strip().lower(), cells["sense"].strip(), cells["sentence"])
            count = _lower_case_words(tokenizer, usage.sentence).count(usage.word)
            if count != 1:
                raise text.fault(
                    f"expected the word {usage.word!r} once, as the tokenizer splits words, found it {count} times in "
                    f"{usage.sentence[:80]!r}; change the sentence, or leave it out.",
                    number,
                )
            usages.append(usage)
    _check_counts(path, usages)
    return usages


def _named_cells(path: Path, row: dict[str, str], columns: dict[str, str], word: str | None) -> dict[str, str]:
    """The cells of a row by the names of `COLUMNS`."""
    cells = {}
    if word is not None:
        word_column = columns.get("word", "word")
        if word_column in row:
            raise DataError(
                f"the word is that of --word or of the column {word_column!r} in {path}, found both; give the file "
                "without --word, or with a column of another name."
            )
        cells["word"] = word
    for name in COLUMNS:
        column = columns.get(name, name)
        if name in cells:
            continue
        if column not in row:
            advice = f"say which it is with --column {name}=NAME"
            if name == "word":
                advice += ", or if all sentences have the same word, give that with --word"
            raise DataError(f"{path} has no column {column!r}, found {', '.join(row)}; {advice}.")
        cells[name] = row[column]
    return cells


def _lower_case_words(tokenizer: ElmoTokenizer, sentence: str) -> list[str]:
    return [word.lower() for word in tokenizer.tokenize(sentence)]


def _check_counts(path: Path, usages: Sequence[Usage]) -> None:
    """Checks that some usages of each sense can be known, and others asked for."""
    if not usages:
        raise DataError(f"{path} holds no rows.")
    senses = defaultdict(set)
    for (word, sense), numbers in _by_sense(usages, range(len(usages))).items():
        senses[word].add(sense)
        if len(numbers) < 2:
            raise DataError(
                f"{path} has one usage of {word!r} in the sense {sense!r}, and two or more are needed, because half of "
                "them are known; add usages, or leave it out."
            )
    for word, names in senses.items():
        if len(names) < 2:
            raise DataError(
                f"{path} has one sense of {word!r}, {min(names)!r}, and two or more are needed; add usages of another "
                "sense, or leave the word out."
            )


@torch.inference_mode()
def vectors_of(usages: Sequence[Usage], model: ElmoModel, tokenizer: ElmoTokenizer) -> Tensor:
    """The ELMo vector of each usage's word in its sentence, `(U, 2P)`."""
    vectors = []
    for start in range(0, len(usages), BATCH_SIZE):
        batch = usages[start : start + BATCH_SIZE]
        inputs = tokenizer([usage.sentence for usage in batch], padding=True, return_tensors="pt")
        places = []
        for row, usage in enumerate(batch):
            words = [word.lower() for word in inputs.tokens(row)]
            places.append(words.index(usage.word))
        vectors.append(model(**inputs).last_hidden_state[torch.arange(len(batch)), places])
    return torch.cat(vectors)


def draw_known(usages: Sequence[Usage], seed: int) -> set[int]:
    """The numbers of the usages that are known: half of those of each sense, rounded up."""
    generator = torch.Generator().manual_seed(seed)
    known = set()
    for numbers in _by_sense(usages, range(len(usages))).values():
        order = torch.randperm(len(numbers), generator=generator).tolist()
        known |= {numbers[place] for place in order[: (len(numbers) + 1) // 2]}
    return known


def nearest_senses(vectors: Tensor, usages: Sequence[Usage], known: set[int]) -> dict[int, str]:
    """The sense of the nearest centre for each usage that is not known, by the usage's number."""
    centres: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for (word, sense), numbers in _by_sense(usages, sorted(known)).items():
        centres[word][sense] = vectors[numbers].mean(dim=0)
    answers = {}
    for number, usage in enumerate(usages):
        if number not in known:
            senses = list(centres[usage.word])
            candidates = torch.stack([centres[usage.word][sense] for sense in senses])
            cosines = torch.cosine_similarity(candidates, vectors[number], dim=-1)
            answers[number] = senses[int(cosines.argmax())]
    return answers


def commonest_senses(usages: Sequence[Usage], known: set[int]) -> dict[int, str]:
    """The commonest sense of its word for each usage that is not known, by the usage's number."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for usage in usages:
        counts[usage.word][usage.sense] += 1
    answers = {}
    for number, usage in enumerate(usages):
        if number not in known:
            answers[number] = counts[usage.word].most_common(1)[0][0]
    return answers


def share_right(answers: dict[int, str], usages: Sequence[Usage]) -> float:
    """The share of the answers that are right."""
    right = sum(usages[number].sense == sense for number, sense in answers.items())
    return right / len(answers)


def compare(usages: Sequence[Usage], model: ElmoModel, tokenizer: ElmoTokenizer, seeds: int = SEEDS) -> list[Scores]:
    """The scores of the commonest sense, of random weights and of the model, for each seed."""
    trained = vectors_of(usages, model, tokenizer)
    scores = []
    for seed in range(seeds):
        known = draw_known(usages, seed)
        torch.manual_seed(seed)
        random = vectors_of(usages, ElmoModel(model.config).eval(), tokenizer)
        score = Scores(
            share_right(commonest_senses(usages, known), usages),
            share_right(nearest_senses(random, usages, known), usages),
            share_right(nearest_senses(trained, usages, known), usages),
            len(usages) - len(known),
        )
        scores.append(score)
    return scores


def print_scores(scores: Sequence[Scores], name: str) -> None:
    """Prints a line for each seed, the means, and the 95% interval of the model's; `name` is the model's."""
    print(f"seed  commonest sense  random weights  {name}")
    for seed, (commonest, random, trained) in enumerate(score[:3] for score in scores):
        print(f"{seed:4}{commonest:17.2f}{random:16.2f}{trained:{len(name) + 2}.2f}")
    commonest, random, trained, num_answers = (sum(column) / len(scores) for column in zip(*scores, strict=True))
    print(f"mean{commonest:17.2f}{random:16.2f}{trained:{len(name) + 2}.2f}")
    low, high = interval(trained, round(num_answers))
    print(f"Each seed has {num_answers:.0f} answers, so {name} is right in {low:.2f} to {high:.2f} of all such usages.")


def _by_sense(usages: Sequence[Usage], numbers: Sequence[int]) -> dict[tuple[str, str], list[int]]:
    """The numbers of usages by word and sense, in their order."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in numbers:
        groups[usages[number].word, usages[number].sense].append(number)
    return groups


@app.command(cls=Command)
def main(
    name: Model = "tiny",
    table: Annotated[Path | None, typer.Argument(help="Your own .csv or .tsv; default: word_senses.csv.")] = None,
    word: Annotated[str | None, typer.Option(help="The word of all sentences of your table.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", help="NAME=COLUMN of your table, for word, sense or sentence; repeat it for more."),
    ] = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Print the scores of a model and of the controls."""
    columns = parse_columns(column or [], COLUMNS)
    if table is None and (columns or word is not None):
        raise typer.BadParameter(
            "--word and --column are for a table of your own, which is given after the model, as in `tiny bank.csv`; "
            f"found none after {name!r}."
        )
    model, tokenizer = load(name)
    if table is None:
        usages = read_usages()
    else:
        usages = read_own_usages(table, tokenizer, columns, word, encoding)
    print_scores(compare(usages, model, tokenizer), Path(name).name)


if __name__ == "__main__":
    app()

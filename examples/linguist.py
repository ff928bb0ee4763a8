"""Tables for R or a spreadsheet: the sentences of a text, and the similarities of sentences.

    python examples/linguist.py sentences novel.txt sentences.txt
    python examples/linguist.py pairs tiny sentences.txt -o pairs.csv

`pairs` has a row for each pair of sentences: the cosine of their pooled vectors, and the share of their words that are
in both.
"""

import re
import sys
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from elmo_hf import ElmoTokenizer
from elmo_hf.cli.arguments import Column, Encoding, InputFormat
from elmo_hf.cli.errors import CONTEXT, Command, check_usage, say
from elmo_hf.cli.split_notes import note_cut
from elmo_hf.disk.tables import SEPARATORS, write_text_table
from elmo_hf.disk.whole_files import check_new_file, new_file
from elmo_hf.embedding.window_vectors import Selection, embed_window
from elmo_hf.folder.loading import load_complete, load_tokenizer
from elmo_hf.text.first_look import are_wrapped
from elmo_hf.text.formats import SHOWN, Format
from elmo_hf.text.sentences import Sentence, read_sentences, reading, storable

sys.path.append(str(Path(__file__).parent / "tiny_model"))
from english_sentences import split_sentences

BATCH_WORDS = 2048
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A folder, a Hub name, or tiny.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="The table to write.")]
Split = Annotated[bool, typer.Option("--split-into-words", help="Sentences are words separated by blanks already.")]

app = typer.Typer(add_completion=False, context_settings=CONTEXT)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def read_words(path: Path, read: Iterable[Sentence], tokenizer: ElmoTokenizer, is_split: bool) -> list[list[str]]:
    """The words of each sentence that is read of a file."""
    split = str.split if is_split else tokenizer.tokenize
    words = (split(sentence) if isinstance(sentence, str) else sentence for sentence in read)
    texts = list(note_cut(words, tokenizer))
    if not any(texts):
        raise ValueError(f"{path} has no sentences.")
    return texts


def read_running_text(path: Path, encoding: str, input_format: Format | None) -> str:
    """The text of a file; a file of another format, such as a table, is refused."""
    with reading(path, encoding, input_format=input_format) as file:
        if file.input_format != "text":
            raise ValueError(
                f"{path} must be running text, but is read as {SHOWN[file.input_format]}. Give it to the other "
                "commands as it is, or export its text."
            )
        return "\n".join(map(str, file.sentences))


def paragraphs_of(text: str, name: Path) -> list[str]:
    """What is between the blank lines of a text; without any, its lines, or all of it if lines end within sentences."""
    if re.search(r"\S\s*\n\s*\n\s*\S", text):  # a blank line between others
        return re.split(r"\n\s*\n", text)
    lines = text.splitlines()
    if are_wrapped(lines):
        say(
            f"Note: {name} has no blank lines, and most of its lines end within a sentence, so all lines were joined. "
            "A heading becomes part of the sentence after it; put a blank line after each.",
            is_error=True,
        )
        return [text]
    return lines


@app.command(cls=Command)
def sentences(text: Path, output: Path, encoding: Encoding = "utf-8", input_format: InputFormat = None) -> None:
    """Cut an English text into sentences, one a line.

    Paragraphs end at blank lines. Without any, each line is a paragraph, unless most lines end within a sentence: then
    all lines are joined, and a note says so.
    """
    check_new_file(output)
    lines: list[str] = []
    for paragraph in paragraphs_of(read_running_text(text, encoding, input_format), text):
        joined = " ".join(paragraph.split())
        if joined:
            lines += filter(None, split_sentences(joined))
    if not lines:
        raise ValueError(f"{text} has no sentences.")
    with new_file(output, replaces=False) as partial:
        partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"Wrote {len(lines):,} sentences to {output}.")


@app.command(cls=Command)
def pairs(
    model_name: Model,
    file: Path,
    output: Output,
    is_split: Split = False,
    input_format: InputFormat = None,
    encoding: Encoding = "utf-8",
    column: Column = None,
) -> None:
    """Measure how similar each two sentences of a file are. ELMo is a poor measure: compare the shared words."""
    check_usage(output.suffix in SEPARATORS, f"--output writes a .csv or .tsv, found {output}.")
    check_new_file(output)
    model, tokenizer = load_complete(model_name), load_tokenizer(model_name)
    texts = read_words(file, read_sentences(file, encoding, column, input_format), tokenizer, is_split)
    pooled = np.zeros((len(texts), model.config.hidden_size), dtype=np.float32)
    for row, arrays in embed_window(model, tokenizer, texts, Selection("pooled"), BATCH_WORDS):
        pooled[row] = arrays["vectors"]
    full = [row for row, words in enumerate(texts) if words]
    pooled[full] = unit(pooled[full])
    sets = [{word.casefold() for word in words} for words in texts]
    first, second = np.array(list(combinations(full, 2)), dtype=int).reshape(-1, 2).T
    columns: dict[str, Any] = {"sentence_1": first, "sentence_2": second}
    columns["cosine"] = (pooled @ pooled.T)[first, second].round(4)
    shared = [len(sets[u] & sets[v]) / len(sets[u] | sets[v]) for u, v in zip(first, second, strict=True)]
    columns["shared_words"] = np.round(shared, 4)
    columns["text_1"] = [storable(" ".join(texts[row])) for row in first]
    columns["text_2"] = [storable(" ".join(texts[row])) for row in second]
    write_text_table(output, pa.table(columns))
    print(f"Wrote {len(first):,} rows to {output}.")


if __name__ == "__main__":
    app()

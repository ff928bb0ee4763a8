"""The command `elmo-hf vectors`."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from ..disk.whole_files import check_new_file
from ..folder.model_names import refuse_unknown
from ..folder.saved_json import naming
from .arguments import Device, Encoding, InputFormatAlone, Model, split_values, usable_device
from .errors import check_usage, refuse_alone, say
from .split_notes import note_cut, note_words_with_marks


def vectors(
    model: Model,
    words: Annotated[Path, Argument(metavar="WORDS", help="One word a line; or .jsonl or .conllu; or .gz.")],
    output: Annotated[Path | None, Option("--output", "-o", metavar="OUT", help="A new text file of vectors.")] = None,
    text_format: Annotated[
        Literal["word2vec", "glove"] | None,
        Option("--format", help="word2vec (default) begins with a line of two counts, glove does not."),
    ] = None,
    layer: Annotated[
        str, Option(help="token: by spelling alone. mix, 1, 2, ...: of a sentence of this one word.")
    ] = "token",
    nearest: Annotated[
        list[str] | None, Option(metavar="WORD", help="Print the nearest of WORDS; give it once for each word.")
    ] = None,
    count: Annotated[int | None, Option(help="With --nearest: how many words; default: 10.", min=1)] = None,
    input_format: InputFormatAlone = None,
    encoding: Encoding = "utf-8",
    device: Device = None,
) -> None:
    """Write vectors of single words, or print nearest words.

    Each word of WORDS gets a vector without context, in a text file that gensim can read. A repeated word is written
    once; blank lines are left out. A word that contains a blank is not written.
    """
    check_usage(output is not None or bool(nearest), "give --output OUT, or --nearest WORD, or both.")
    refuse_alone("--output OUT", output is not None, format=text_format)
    refuse_alone("--nearest WORD", bool(nearest), count=count)
    queries = nearest or []
    if output is not None:
        check_new_file(output)
    refuse_unknown(model)
    from elmo_hf.embedding.static_vectors import (
        nearest_words,
        read_words,
        refuse_blanks,
        word_vectors,
        write_word_vectors,
    )
    from elmo_hf.folder.loading import load_complete, load_tokenizer
    from elmo_hf.model.tokenization_elmo import SPECIAL_WORDS

    word_list = read_words(words, encoding, input_format)
    if output is not None:
        with naming(words):
            refuse_blanks(word_list.words)
    _refuse_several(queries, word_list.words)
    place = usable_device(device)
    loaded, tokenizer = load_complete(model).to(place), load_tokenizer(model)
    for _ in note_cut([word_list.words], tokenizer):  # after the last list it prints its note
        pass
    note_words_with_marks(str(words), word_list.words, tokenizer)
    if output is not None:
        header = text_format != "glove"
        size = write_word_vectors(
            loaded, tokenizer, word_list.words, output, layer, header, show_progress=True, replaces=False
        )
        say(f"Wrote {len(word_list.words)} words, {size} numbers each, to {output}.")
        if word_list.num_repeated or word_list.num_blank:
            say(f"Left out: {word_list.num_repeated} repeated and {word_list.num_blank} blank.")
    if queries:
        table = word_vectors(loaded, tokenizer, word_list.words, layer, show_progress=True)
        for query, vector in zip(queries, word_vectors(loaded, tokenizer, queries, layer), strict=True):
            near = nearest_words(table, word_list.words, vector, count or 10, but=[query, *SPECIAL_WORDS])
            say(f"{query}: {', '.join(f'{word} {cosine:.2f}' for word, cosine in near)}")


def _refuse_several(queries: list[str], words: Collection[str]) -> None:
    """Refuses words in one --nearest: a query that is not in the list, but whose parts at blanks and commas are."""
    for query in queries:
        parts = split_values([query]) or []
        if query not in words and len(parts) > 1 and set(parts) <= set(words):
            raise ValueError(
                f"{query!r} is not in the list, but {' and '.join(parts)} are: give --nearest once for each word, "
                "because a word may contain blanks and commas."
            )

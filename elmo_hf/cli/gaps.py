"""The command `elmo-hf fill`."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from ..text.sentences import Sentence, read_sentences
from .arguments import Encoding, InputFormat, Model, load_on_gpu
from .errors import say
from .split_notes import note_cut


def fill(
    model: Model,
    text: Annotated[
        str, Argument(metavar="TEXT", help="A sentence with ___ in place of a word, or a file of such sentences.")
    ],
    top_k: Annotated[int, Option("--top-k", help="How many words.", min=1)] = 5,
    candidates: Annotated[
        str | None, Option(metavar="WORDS", help="Choose from these words, with blanks between them.")
    ] = None,
    direction: Annotated[
        Literal["both", "forward", "backward"],
        Option(help="Words before the gap (forward), behind it (backward), or both."),
    ] = "both",
    input_format: InputFormat = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Print the words that fit each gap of TEXT.

    The probability of both directions is their normalised product, printed beside each direction's own. A file is
    text, .jsonl or .conllu, plain or .gz. MODEL needs its softmax; `elmo-hf info` shows whether it has one.
    """
    from elmo_hf.language_model.cloze import gap_log_probs, gaps, rank_words

    # `os.path.exists`, unlike `Path.exists`, takes a text that is too long for a name.
    read: Iterable[Sentence] = [text]
    if os.path.exists(text) and not os.path.isdir(text):
        read = read_sentences(Path(text), encoding=encoding, input_format=input_format)
    sentences = [sentence for sentence in read if sentence]
    language_model, tokenizer = load_on_gpu(model)
    chosen = None if candidates is None else candidates.split()
    read_words = (tokenizer.tokenize(each) if isinstance(each, str) else each for each in sentences)
    texts = [*note_cut(read_words, tokenizer)]
    places = [gaps(words) for words in texts]  # a sentence without a gap is refused before anything is printed
    for sentence, words, found in zip(sentences, texts, places, strict=True):
        log_probs = gap_log_probs(language_model, tokenizer, words, found)
        say(sentence if isinstance(sentence, str) else " ".join(words))
        for ranked in rank_words(log_probs, tokenizer, top_k, chosen, direction):
            width = max(len("word"), *(len(each.word) for each in ranked))
            names = [name for name in ("forward", "backward") if getattr(ranked[0], name) is not None]
            others = [name for name in names if name != direction]
            say(f"  {'word':{width}}" + "".join(f"  {name:>8}" for name in (direction, *others)))
            for each in ranked:
                numbers = (each.probability, *(getattr(each, name) for name in others))
                say(f"  {each.word:{width}}" + "".join(f"  {number:8.4f}" for number in numbers))

"""What models for a task refuse: each line is a word that the message must have, and the call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from elmo_hf import ElmoTokenizer, WordVectors, extract_answers
from elmo_hf.model.heads_elmo import LinearChainCRF
from tests.helpers.task_models import make_batch, make_task_model

SPECIAL = ["<S>", "</S>", "<UNK>"]
VECTORS = WordVectors([*SPECIAL, "ferry"], 4, True)
ROW_WITHOUT_BOUNDARIES = make_batch("pairs")["input_ids"].index_fill(0, torch.tensor(1), 3)
PAIRS = make_batch("pairs")["input_ids"]
ROWS_WITH_A_THIRD_BEGINNING = torch.cat([PAIRS[:, :1], PAIRS[:, :1], PAIRS[:, 2:]], dim=1)
# A model that has the ids of the batches, but the names of another alphabet.
CODE_POINTS = {"ALPHABET": "code_points", "BOS_TOKEN_ID": 257, "EOS_TOKEN_ID": 258}
PAIR = "each row of `input_ids` must hold a pair of texts, `tokenizer(text, text_pair)`"
CRF = LinearChainCRF(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])


def run(task: str, batch: str | None = None, trains: bool = False, **changes: Any) -> object:
    """A model on a batch, its own or another task's, with some arguments changed; upper case makes config fields."""
    fields = {name.lower(): value for name, value in changes.items() if name.isupper()}
    model = make_task_model(task, **fields).train(trains)
    return model(**make_batch(batch or task) | {name: each for name, each in changes.items() if name.islower()})


def loss(*labels: int) -> object:
    return CRF.loss(torch.randn(1, 3, 5), torch.tensor([labels]), torch.ones(1, 3, dtype=torch.bool))


def put(vectors: WordVectors, **fields: Any) -> None:
    vectors.put_into(make_task_model("crf", **fields), ElmoTokenizer())


REFUSALS: dict[str, Callable[[], object]] = {
    "spell it differently. For pairs of texts, make the classifier with `text_pairs=True`": (
        lambda: run("classification", "pairs")
    ),
    "must hold one text, found 2 `<S>` in row 0. A word `<S>` in a text is a boundary too; spell it differently.": (
        lambda: run("labelling", "pairs")
    ),
    "must hold one text, found 2 `<bos>` in row 0. A word `<bos>` in a text is a boundary too;": (
        lambda: run("labelling", "pairs", **CODE_POINTS)
    ),
    "`input_ids` must be None with `inputs_embeds`": lambda: run("crf", inputs_embeds=torch.zeros(3, 8, 7)),
    "`inputs_embeds` must be None for pairs": lambda: make_task_model("pairs")(inputs_embeds=torch.zeros(3, 8, 7)),
    "for no answer, or -100 to leave a question out of the loss, found 1 in row 1": lambda: run(
        "questions", start_positions=torch.tensor([0, 1, 0])
    ),
    "`end_positions` must be positions of words of the context": lambda: run(
        "questions", end_positions=torch.tensor([0, 0, 3])
    ),
    "found -1 in row 2": lambda: run("questions", start_positions=torch.tensor([0, -100, -1])),
    "`start_positions` must be a tensor of shape (3), found (2,)": lambda: run(
        "questions", start_positions=torch.tensor([0, 0])
    ),
    "`null_threshold` needs a logit": lambda: extract_answers(
        torch.tensor([[-torch.inf, 1.0]]), torch.ones(1, 2), [[(0, 0), (0, 1)]], ["a"], null_threshold=0.0
    ),
    "`labels` must be a tensor of shape (3, 8), found (3, 7)": lambda: run("labelling", labels=torch.zeros(3, 7)),
    "`labels` must be from 0.0 to 1.0 in multi-label classification, found -100.0": lambda: run(
        "classification", labels=torch.tensor([[0.0, 1.0, 0.5], [1.0, -100.0, 0.0], [0.0, 0.0, 0.0]])
    ),
    "`bilm_layers` must be a tensor of shape (3, 8, 3, 14)": lambda: run("crf", bilm_layers=torch.zeros(3, 3, 8, 14)),
    "found ['layer_1']": lambda: run("crf", trains=True, bilm_layers=torch.zeros(3, 8, 3, 14), FREEZE_BILM=["layer_1"]),
    "'I-PER' cannot follow 'O', found at word 1 of text 0": lambda: loss(0, 2, -100),
    "'I-LOC' cannot follow 'the beginning of a text', found at word 0": lambda: loss(4, 0, 0),
    "`labels` must be from 0 to 4, found 5": lambda: loss(0, 5, 0),
    "`labels` must be from 0 to 4, found -1": lambda: loss(0, -1, 0),
    "`word_vector_ids` must be a tensor of shape (3, 8), found None": lambda: run("crf", WORD_VECTORS=VECTORS.config),
    "out of range": lambda: run("crf", WORD_VECTORS=VECTORS.config, word_vector_ids=torch.full((3, 8), 5)),
    "`marks` must be a tensor of shape (3, 8), found None": lambda: run("crf", MARK_SIZE=3),
    "`marks` must be a tensor of shape (3, 13), found (3, 7)": lambda: run(
        "pairs", MARK_SIZE=3, marks=torch.ones(3, 7)
    ),
    "`marks` must be None without `mark_size`": lambda: run("crf", marks=torch.ones(3, 8)),
    "index out of range in self": lambda: run("questions", MARK_SIZE=3, marks=torch.full((3, 13), 2)),
    "of shape (5, 9), found (5, 4)": lambda: put(WordVectors(VECTORS.words, 9, True), word_vectors=VECTORS.config),
    "word_vectors.weight` must": lambda: put(VECTORS),
    "`min_count`": lambda: WordVectors.learned([["a", "b", "a"]], 5, min_count=3),
}


@pytest.mark.parametrize("word", REFUSALS)
def test_what_is_refused_is_named(word: str) -> None:
    with pytest.raises((ValueError, RuntimeError, IndexError)) as error:
        REFUSALS[word]()
    assert word in str(error.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (make_batch("classification"), f"{PAIR}, found 1 `<S>` in row 0."),
        (make_batch("pairs") | {"input_ids": ROW_WITHOUT_BOUNDARIES}, f"{PAIR}, found 0 `<S>` in row 1."),
        (
            make_batch("pairs") | {"input_ids": ROWS_WITH_A_THIRD_BEGINNING},
            f"{PAIR}, found 3 `<S>` in row 0. A word `<S>` in a text is a boundary too; spell it differently.",
        ),
    ],
)
def test_a_word_that_is_a_boundary_is_named_only_where_a_row_has_too_many(
    inputs: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match="must hold a pair") as error:
        make_task_model("pairs")(**inputs)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "no word has a vector"),
        (b"the\n", "line 1: expected a word and some"),
        (b"a 1 2\nb 1\n", "line 2: expected a word and 2 finite numbers, found 'b 1"),
        (b"a 1\nb nan\n", "line 2: expected"),
        (b"3 2\na 1 2\nb 1 2\n", "must have the 3 words that its line 1 says, found 2"),
        (b"a 1\n\xff 1\n", "line 2: not UTF-8 (byte 0xff)."),
        (b"PK\x03\x04\0\0", "the character 0"),
    ],
)
def test_damaged_word_vectors_are_refused_with_their_place(content: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the word is compared
        WordVectors.from_file(path)
    assert word in str(error.value)
    assert "line" not in word or str(path) in str(error.value)

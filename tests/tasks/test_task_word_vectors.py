"""[x; mark; ELMo], x a task's own word vector: in files, in the tokenizer, in every model, and in saved folders."""

import gzip
from pathlib import Path
from typing import Any

import pytest
import torch

from elmo_hf import ElmoModel, ElmoTokenizer, WordVectors
from elmo_hf.folder.loading import load_complete
from elmo_hf.model.heads_elmo import ElmoTaskModel
from elmo_hf.share.export import NamedTensors, example_inputs
from tests.helpers.task_models import FIRST, LSTM, SECOND, TOKENIZER, C, logits_of, make_batch, make_task_model
from tests.helpers.task_training import each_task
from tests.helpers.tiny_inputs import assert_outputs_close

SIZE = 4
SPECIAL = ["<S>", "</S>", "<UNK>"]
WORDS = WordVectors.learned([text.split() for text in (*FIRST, *SECOND)], SIZE, min_count=1).words
TABLE = torch.randn(1 + len(WORDS), SIZE, generator=torch.Generator().manual_seed(5))
TABLE[0] = 0
VECTORS = WordVectors(WORDS, SIZE, True, TABLE)
ROWS = {"the": [0.5, -1.0, 2.0], "ferry": [1.5, 0.25, -4.0], "Oslo": [1.0, 3.0, 8.0]}
GLOVE = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in ROWS.items()).encode()
WORD2VEC = b"3 3\n" + GLOVE.replace(b"\n", b" \n")  # its own writer ends each line with a blank


def make(task: str, vectors: WordVectors = VECTORS, **fields: Any) -> tuple[ElmoTaskModel, ElmoTokenizer]:
    model = make_task_model(task, word_vectors=vectors.config, **fields)
    tokenizer = ElmoTokenizer(max_word_length=C, word_splitter="whitespace")
    vectors.put_into(model, tokenizer)
    return model, tokenizer


def tokenizer_of(*words: str) -> ElmoTokenizer:
    """A tokenizer in which these words have the rows from 4 on."""
    tokenizer = ElmoTokenizer(max_word_length=C, word_splitter="whitespace")
    WordVectors([*SPECIAL, *words], SIZE, True).put_words_into(tokenizer)
    return tokenizer


def test_each_word_has_its_row_and_others_the_unknown_words() -> None:
    assert "word_vector_ids" not in TOKENIZER(FIRST[0])
    tokenizer = tokenizer_of("We", "waited")
    ids = tokenizer(["We waited there", "waited"], ["We we", ""], padding=True)["word_vector_ids"]
    assert ids == [[1, 4, 5, 3, 2, 1, 4, 3, 2], [1, 5, 2, 1, 2, 0, 0, 0, 0]]
    tokenizer.padding_side = "left"
    ids = tokenizer(["We waited there", "waited"], add_special_tokens=False, padding=True, return_tensors="pt")
    assert ids["word_vector_ids"].tolist() == [[4, 5, 3], [0, 0, 5]]
    features = [tokenizer(["waited"], is_split_into_words=True), tokenizer("We We We", truncation=True, max_length=4)]
    assert tokenizer.pad(features)["word_vector_ids"] == [[0, 1, 5, 2], [1, 4, 4, 2]]
    # Words are looked up in lower case if no word has another.
    assert tokenizer_of("we")("We we")["word_vector_ids"] == [1, 4, 4, 2]
    assert tokenizer_of("we", "WE")("We we")["word_vector_ids"] == [1, 3, 4, 2]


@each_task
@pytest.mark.parametrize("encoder", ["none", "lstm"])
@pytest.mark.parametrize("has_own", [True, False], ids=["own", "the biLM's"])
@pytest.mark.parametrize("mark_size", [None, 3], ids=["", "marks"])
def test_the_task_encoder_reads_the_words_row_and_mark_beside_elmo(
    task: str, encoder: str, has_own: bool, mark_size: int | None
) -> None:
    fields = {"mark_size": mark_size} | (LSTM if encoder == "lstm" else {"num_output_representations": 2})
    model, tokenizer = make(task, **fields) if has_own else (make_task_model(task, **fields), TOKENIZER)
    model.elmo.scalar_mixes[1].set_weights([0.1, 0.2, 0.7])
    batch = make_batch(task, "left", tokenizer=tokenizer)
    marks = torch.randint(0, 2, batch["attention_mask"].shape)
    is_word = batch["attention_mask"].bool() & ~model.elmo.boundaries(batch["input_ids"])
    given = None if mark_size is None else marks.masked_fill(~is_word, -100)
    ids, mask = batch["input_ids"], batch["attention_mask"]
    texts = model.encode_texts(ids, mask, None, None, batch.get("word_vector_ids"), given)
    first, second = (texts.rows.take(mixed) for mixed in model.elmo.mix(texts.layers, batch["attention_mask"].bool()))
    own = TABLE[batch["word_vector_ids"]] if has_own else texts.layers[0][..., :7]
    if mark_size is not None:
        first = torch.cat([texts.rows.take(model.task_encoder.mark_vectors.weight[marks]), first], dim=-1)
    if encoder == "lstm":
        first = model.task_encoder.lstm(torch.cat([texts.rows.take(own), first], dim=-1), texts.rows.mask)
    elif has_own:
        first = torch.cat([texts.rows.take(own), first], dim=-1)
    expected = torch.cat([first, second], dim=-1)
    assert expected.shape[-1] == model.task_encoder.output_size
    assert_outputs_close(texts.vectors[texts.rows.mask], expected[texts.rows.mask])


@each_task
def test_a_saved_folder_and_kept_layers_give_equal_numbers(task: str, tmp_path: Path) -> None:
    model, tokenizer = make(task, **LSTM)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again, tokenizer_again = load_complete(tmp_path, type(model)), ElmoTokenizer.from_pretrained(tmp_path)
    batch = make_batch(task, tokenizer=tokenizer)
    expected = logits_of(model(**batch))
    assert_outputs_close(logits_of(again(**make_batch(task, tokenizer=tokenizer_again))), expected, 0)
    assert_outputs_close(logits_of(model(**batch, bilm_layers=model.compute_bilm_layers(**batch))), expected)
    assert isinstance(load_complete(tmp_path), ElmoModel)  # which needs no word vectors


@each_task
@pytest.mark.parametrize("trainable", [True, False])
def test_a_table_learns_if_it_is_trainable(task: str, trainable: bool) -> None:
    vectors = WordVectors(WORDS[:3] + WORDS[5:], SIZE, trainable)
    model, tokenizer = make(task, vectors, **LSTM)
    model.train()(**make_batch(task, tokenizer=tokenizer)).loss.backward()
    gradient = model.word_vectors.weight.grad
    assert (gradient is not None) == trainable
    # Padding and boundaries do not learn; unknown words do.
    assert not trainable or gradient.any(dim=1)[:4].tolist() == [False, False, False, True]


def test_what_is_exported_reads_the_ids_too() -> None:
    model, _ = make("labelling", mark_size=3)
    module = NamedTensors(model)
    inputs = example_inputs(module, [3, 5])
    assert inputs["word_vector_ids"].shape == inputs["marks"].shape == (2, 5)
    with torch.no_grad():
        assert_outputs_close(module(**inputs)["logits"], model(**inputs).logits)


def test_word_vectors_have_the_dropout_of_representations_in_training() -> None:
    model, tokenizer = make("classification", representation_dropout=0.5)
    inputs = make_batch("classification", tokenizer=tokenizer)
    given = inputs["word_vector_ids"], [], inputs["attention_mask"].bool()
    evaluated, trained = model.token_vectors(*given), model.train().token_vectors(*given)
    is_kept = trained != 0
    assert 0.2 < is_kept[evaluated != 0].float().mean() < 0.8
    assert_outputs_close(trained[is_kept], 2 * evaluated[is_kept])


def read(folder: Path, content: bytes, words: list[str] | None = None, name: str = "a.txt") -> WordVectors:
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    vectors = WordVectors.from_file(folder / name, words, trainable=words is not None)
    assert vectors.table is not None
    assert vectors.table[:3].abs().sum() == 0
    assert vectors.config == {"num_words": len(vectors.words), "size": 3, "trainable": words is not None}
    return vectors


@pytest.mark.parametrize(
    ("name", "content"),
    [("glove.txt", GLOVE), ("glove.txt.gz", GLOVE.replace(b"\n", b"\r\n")), ("w2v.vec", WORD2VEC)],
)
def test_each_format_gives_the_same_table(name: str, content: bytes, tmp_path: Path) -> None:
    vectors = read(tmp_path, content + b"the 7 8 9\n", name=name)  # of equal words the first counts
    assert vectors.words == [*SPECIAL, *ROWS]
    assert vectors.table[3:].tolist() == [[1.0, 0.75, 2.0], *ROWS.values()]


def test_only_wanted_words_are_kept_and_their_forms_in_lower_case(tmp_path: Path) -> None:
    vectors = read(tmp_path, GLOVE, ["The", "Oslo", "harbour", "OSLO", "\ud800"])
    assert vectors.words == [*SPECIAL, "the", "Oslo"]
    assert vectors.table[3].tolist() == [0.75, 1.0, 5.0]


def test_the_files_own_vector_of_unknown_words_is_used(tmp_path: Path) -> None:
    for words in (None, ["the"]):
        vectors = read(tmp_path, GLOVE + b"<unk> 7 8 9\n", words)
        assert "<unk>" not in vectors.words
        assert vectors.table[3].tolist() == [7, 8, 9]


def test_words_that_no_line_of_a_vocabulary_can_hold_are_left_out(tmp_path: Path) -> None:
    strange = ". . 1 2 3\nat me@there.com 1 2 3\n\u00a0 1 2 3\na\u00a0b 1 2 3\n 1 2 3\n<S> 1 2 3\nnice 1 2 3\n"
    assert read(tmp_path, b"first 1 2 3\n" + strange.encode()).words == [*SPECIAL, "first", "nice"]


def test_learned_vectors_are_for_words_that_occur_often_enough() -> None:
    texts = [["a", "b", "a"], ["c", "b", "<UNK>", "<UNK>", "x y", "x y"]]
    assert WordVectors.learned(texts, 5) == WordVectors([*SPECIAL, "a", "b"], 5, trainable=True)
    assert WordVectors.learned(texts, 5, min_count=1).words[3:] == ["a", "b", "c"]

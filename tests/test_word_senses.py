"""The senses of words by their vectors: what the data holds, and that each answer is the nearest known sense."""

from collections import Counter
from pathlib import Path

import pytest
import torch
import typer
import word_senses
from word_senses import (
    Scores,
    Usage,
    commonest_senses,
    draw_known,
    nearest_senses,
    print_scores,
    read_own_usages,
    read_usages,
    share_right,
    vectors_of,
)

from elmo_hf import ElmoModel, ElmoTokenizer

USAGES = [
    Usage("bank", "river", "The bank was green"),
    Usage("bank", "river", "A muddy bank"),
    Usage("bank", "money", "Bank of Oslo"),
    Usage("bank", "money", "She left the bank"),
    Usage("bank", "money", "It is a bank"),
    Usage("rose", "flower", "A rose"),
    Usage("rose", "flower", "One rose is red"),
]


def test_each_word_of_the_data_is_in_its_sentence_and_has_several_senses_with_several_usages() -> None:
    usages = read_usages()
    tokenizer = ElmoTokenizer()
    assert all(usage.word in map(str.lower, tokenizer.tokenize(usage.sentence)) for usage in usages)
    assert len(set(usages)) == len(usages)
    counts = Counter((usage.word, usage.sense) for usage in usages)
    assert min(counts.values()) >= 2
    assert min(Counter(word for word, _ in counts).values()) >= 2


def test_half_of_the_usages_of_each_sense_are_known_and_the_seed_decides_which() -> None:
    draws = [draw_known(USAGES, seed) for seed in range(20)]
    for known in draws:
        counts = Counter(USAGES[number].sense for number in known)
        assert counts == {"river": 1, "money": 2, "flower": 1}
    assert draw_known(USAGES, 3) == draws[3]
    assert set.union(*draws) == set(range(len(USAGES)))


def test_a_usage_gets_the_sense_of_its_own_word_whose_mean_is_nearest_by_the_cosine() -> None:
    vectors = torch.tensor([[9.0, 1], [1, 9], [0, 2], [4, 1], [9, 1], [1, 9], [1, 9]])
    known = {0, 2, 3, 5}  # the means are (9, 1) of a river, (2, 1.5) for money, (1, 9) of a flower
    answers = nearest_senses(vectors, USAGES, known)
    assert answers == {1: "money", 4: "river", 6: "flower"}
    assert share_right(answers, USAGES) == 1 / 3
    assert commonest_senses(USAGES, known) == {1: "money", 4: "money", 6: "flower"}


def test_a_vector_is_that_of_the_word_in_its_sentence_alone(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    vectors = vectors_of(USAGES, mixed_model, tiny_tokenizer)
    for usage, place, vector in zip(USAGES, [2, 3, 1, 4, 4, 2, 2], vectors, strict=True):
        alone = mixed_model(**tiny_tokenizer(usage.sentence, return_tensors="pt")).last_hidden_state[0, place]
        torch.testing.assert_close(vector, alone)


def test_the_last_lines_have_the_means_and_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    print_scores([Scores(0.5, 0.25, 1, 44), Scores(0.5, 0.75, 0.5, 44)], "my-model")
    assert capsys.readouterr().out == (
        "seed  commonest sense  random weights  my-model\n"
        "   0             0.50            0.25      1.00\n"
        "   1             0.50            0.75      0.50\n"
        "mean             0.50            0.50      0.75\n"
        "Each seed has 44 answers, so my-model is right in 0.61 to 0.85 of all such usages.\n"
    )


ROWS = "The bank was green,river\nA muddy bank,river\nBank of Oslo,money\nShe left the bank,money\n"


def test_usages_of_a_users_own_table_have_its_columns_and_the_word_of_all_rows(
    tmp_path: Path, tiny_tokenizer: ElmoTokenizer
) -> None:
    table = tmp_path / "own.csv"
    table.write_text(f"text,label\n{ROWS}", encoding="utf-8")
    columns = {"sentence": "text", "sense": "label"}
    assert read_own_usages(table, tiny_tokenizer, columns, "Bank") == USAGES[:4]
    lines = [f"{usage.word}\t{usage.sense}\t{usage.sentence}\n" for usage in USAGES[:4]]
    table = tmp_path / "own.tsv"
    table.write_text("word\tsense\tsentence\n" + "".join(lines), encoding="utf-8")
    assert read_own_usages(table, tiny_tokenizer, {}) == USAGES[:4]


@pytest.mark.parametrize(
    ("name", "content", "word", "message"),
    [
        ("a.txt", "sentence,sense\n" + ROWS, "bank", r"must end in \.csv or \.tsv"),
        ("a.csv", "sentence,sense\n" + ROWS, None, r"no column 'word', found sentence, sense; .* with --word\."),
        (
            "a.csv",
            "word,sense\nbank,river\n",
            None,
            r"no column 'sentence', found word, sense; .* --column sentence=NAME",
        ),
        ("a.csv", "word,sentence,sense\nbank,A bank,river\n", "bank", r"found both; .* without --word"),
        ("a.csv", "sentence,sense\n" + ROWS + "A bank,\n", "bank", r"a\.csv, line 6: the sense is missing"),
        ("a.csv", "sentence,sense\n" + ROWS + "No word,river\n", "bank", r"line 6: .*'bank' once, .* found it 0 times"),
        ("a.csv", "sentence,sense\nbank bank,river\n", "bank", r"line 2: .* found it 2 times"),
        ("a.csv", "sentence,sense\n" + ROWS + "A bank,sand\n", "bank", r"one usage of 'bank' in the sense 'sand'"),
        ("a.csv", "sentence,sense\nA bank,river\nThe bank,river\n", "bank", r"one sense of 'bank', 'river', and two"),
        ("a.csv", "sentence,sense\n", "bank", r"a\.csv holds no rows"),
    ],
)
def test_what_is_wrong_with_a_users_own_table_is_one_sentence(
    name: str, content: str, word: str | None, message: str, tmp_path: Path, tiny_tokenizer: ElmoTokenizer
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_own_usages(tmp_path / name, tiny_tokenizer, {}, word)


def test_vectors_do_not_depend_on_the_batches(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = vectors_of(USAGES, mixed_model, tiny_tokenizer)
    monkeypatch.setattr(word_senses, "BATCH_SIZE", 3)
    torch.testing.assert_close(vectors_of(USAGES, mixed_model, tiny_tokenizer), together)


def test_a_table_in_the_place_of_the_model_is_refused_with_the_order_of_both() -> None:
    with pytest.raises(
        typer.BadParameter, match=r"after the model, as in `tiny bank\.csv`; found none after 'my\.csv'"
    ):
        word_senses.main("my.csv", word="bank")

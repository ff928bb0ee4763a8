"""Words to ids and back, against AllenNLP's rule written out character by character and against AllenNLP's own ids."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from checkpoints import FIXTURES, GOLDEN_CASES

from elmo_hf.tokenizer.word_codec import CharacterCodec, VocabularyCodec, read_vocabulary, read_vocabulary_file

EDGE_WORDS = {
    "plain": "word",
    "empty": "",
    "lone_surrogate": "\ud800",
    "surrogate_inside": "lone\ud83dsurrogate",
    "both_halves_as_two_surrogates": "\ud83d\ude42",
    "47_bytes": "x" * 47,
    "48_bytes": "x" * 48,
    "49_bytes": "x" * 49,
    "48_bytes_of_two": "é" * 24,
    "49_bytes_cut_inside_two": "a" + "é" * 24,
    "50_bytes_cut_inside_four": "ab" + "🙂" * 12,
    "cut_after_one_of_three": "x" * 47 + "猫",
    "nul": "nul\0byte",
    "only_nul": "\0",
    "all_one_byte_characters": "".join(map(chr, range(1, 40))),
    "begin_sentence": "<S>",
    "end_sentence": "</S>",
    "lower_case_boundary": "<s>",
    "boundary_with_blank": "<S> ",
    "padding_as_text": "<pad>",
    "unknown_as_text": "<UNK>",
    "blanks_inside": " a b\t",
    "no_break_space": "nbsp\u00a0in",
    "emoji": "👩‍👩‍👧‍👦",
    "combining": "n\u0303o\u0308e\u0301",
    "composed": "ñöé",
    "byte_order_mark": "\ufeffbom",
    "last_code_point": "\U0010ffff",
}


def allennlp_row(word: str, max_word_length: int) -> list[int]:
    """AllenNLP's `ELMoCharacterMapper.convert_word_to_char_ids`, with the 1 that it adds at the end."""
    if word in ("<S>", "</S>"):
        places = [258, 256 if word == "<S>" else 257, 259]
    else:
        places = [258]
        for character in word:
            if not 0xD800 <= ord(character) <= 0xDFFF:
                places += character.encode()
        places = [*places[: max_word_length - 1], 259]
    while len(places) < max_word_length:
        places.append(260)
    return [place + 1 for place in places]


def random_words(count: int, seed: int) -> list[str]:
    """Words of 0 to 60 code points of every UTF-8 length, surrogates among them."""
    generator = random.Random(seed)
    ranges = [(0, 0x7F), (0x20, 0x7E), (0x80, 0x7FF), (0x300, 0x36F), (0xD800, 0xDFFF), (0x800, 0xFFFF)]
    ranges += [(0x10000, 0x10FFFF)]
    return [
        "".join(chr(generator.randint(*generator.choice(ranges))) for _ in range(generator.randint(0, 60)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("max_word_length", [3, 11, 24, 50])
@pytest.mark.parametrize("word", EDGE_WORDS.values(), ids=EDGE_WORDS.keys())
def test_a_word_has_allennlps_row(word: str, max_word_length: int) -> None:
    rows = CharacterCodec(max_word_length).encode([word])
    assert rows.dtype == np.int16
    assert rows.tolist() == [allennlp_row(word, max_word_length)]


@pytest.mark.parametrize("max_word_length", [3, 11, 24, 50])
def test_many_random_words_at_once_have_allennlps_rows(max_word_length: int) -> None:
    words = random_words(1500, seed=max_word_length) + list(EDGE_WORDS.values())
    random.Random(5).shuffle(words)
    rows = CharacterCodec(max_word_length).encode(words)
    assert rows.tolist() == [allennlp_row(word, max_word_length) for word in words]


def test_no_words_give_no_rows() -> None:
    rows = CharacterCodec(11).encode([])
    assert rows.shape == (0, 11)
    assert rows.dtype == np.int16


def test_a_word_of_48_bytes_fills_its_row_and_a_longer_one_is_cut_to_the_same() -> None:
    full, cut = CharacterCodec(50).encode(["x" * 48, "x" * 48 + "yz"]).tolist()
    assert full == cut == [259, *[ord("x") + 1] * 48, 260]


def test_boundaries_have_rows_of_their_own() -> None:
    rows = CharacterCodec(7).encode(["<S>", "</S>", "S"]).tolist()
    assert rows == [
        [259, 257, 260, 261, 261, 261, 261],
        [259, 258, 260, 261, 261, 261, 261],
        [259, 84, 260, 261, 261, 261, 261],
    ]


def test_boundaries_fit_into_the_shortest_row() -> None:
    assert CharacterCodec(3).encode(["</S>", "<S>", "abc", ""]).tolist() == [
        [259, 258, 260],
        [259, 257, 260],
        [259, 98, 260],
        [259, 260, 261],
    ]


@pytest.mark.parametrize("case", GOLDEN_CASES)
def test_ids_are_those_allennlp_computed(case: str) -> None:
    calls = json.loads((FIXTURES / case / "sentences.json").read_text(encoding="utf-8"))
    expected = np.load(FIXTURES / case / "expected.npz")
    names = {call: "char_ids" if call == "call1" else f"{call}_char_ids" for call in calls}
    assert set(names.values()) == {name for name in expected.files if name.endswith("char_ids")}
    for call, sentences in calls.items():
        ids = expected[names[call]]
        codec = CharacterCodec(ids.shape[-1])
        padded = np.zeros_like(ids)
        for row, words in enumerate(sentences):
            padded[row, : len(words)] = codec.encode(words)
        np.testing.assert_array_equal(padded, ids, err_msg=f"{case} {call}")


@pytest.mark.parametrize("max_word_length", [24, 50])
def test_decoding_gives_back_words_that_were_not_cut(max_word_length: int) -> None:
    codec = CharacterCodec(max_word_length)
    words = [word.encode("utf-8", "ignore").decode() for word in [*EDGE_WORDS.values(), *random_words(900, seed=2)]]
    short = [word for word in words if len(word.encode()) <= max_word_length - 2]
    assert len(short) > 100
    assert [codec.decode(row) for row in codec.encode(short)] == short


@pytest.mark.parametrize(
    ("word", "decoded"),
    [
        pytest.param("猫" * 3, "猫猫猫", id="nine_bytes_whole"),
        pytest.param("x" * 12, "x" * 9, id="ascii_just_shorter"),
        pytest.param("x" * 8 + "é", "x" * 8 + "\ufffd", id="one_of_two_bytes"),
        pytest.param("x" * 7 + "猫", "x" * 7 + "\ufffd", id="two_of_three_bytes"),
        pytest.param("x" * 6 + "🙂y", "x" * 6 + "\ufffd", id="three_of_four_bytes"),
        pytest.param("lone\ud800r", "loner", id="surrogate_vanished"),
    ],
)
def test_decoding_a_cut_word_marks_the_incomplete_character(word: str, decoded: str) -> None:
    codec = CharacterCodec(11)
    assert codec.decode(codec.encode([word])[0]) == decoded


def test_decoding_a_row_of_zeros_gives_the_padding_word() -> None:
    assert CharacterCodec(11).decode(np.zeros(11, dtype=np.int64)) == "<pad>"


def test_decoding_tells_the_empty_word_from_padding() -> None:
    codec = CharacterCodec(11)
    assert codec.decode(codec.encode([""])[0]) == ""


def test_each_single_id_has_one_name() -> None:
    symbols = CharacterCodec(11).symbols
    assert sorted(symbols.values()) == list(range(262))
    names = {"<pad>": 0, "<0x00>": 1, "<0x41>": ord("A") + 1, "<0xFF>": 256, "<S>": 257, "</S>": 258}
    names |= {"<W>": 259, "</W>": 260, "<filler>": 261}
    assert {name: symbols[name] for name in names} == names


VOCABULARY = {"<pad>": 0, "<S>": 1, "</S>": 2, "<UNK>": 3, "the": 4, "cat": 5}


def test_words_have_their_number_in_the_vocabulary() -> None:
    ids = VocabularyCodec(VOCABULARY).encode(["<S>", "cat", "the", "cat", "</S>"])
    assert ids.dtype == np.int64
    assert ids.tolist() == [1, 5, 4, 5, 2]


@pytest.mark.parametrize("word", ["dog", "The", "", " cat", "<s>", "\ud800", "<UNK>", "<pad>"])
def test_a_word_outside_the_vocabulary_is_unknown(word: str) -> None:
    assert VocabularyCodec(VOCABULARY).encode(["the", word]).tolist() == [4, 3]


def test_no_words_give_no_numbers() -> None:
    ids = VocabularyCodec(VOCABULARY).encode([])
    assert ids.shape == (0,)
    assert ids.dtype == np.int64


def test_a_number_decodes_to_its_word() -> None:
    codec = VocabularyCodec(VOCABULARY)
    assert [codec.decode(word_id) for word_id in np.arange(6)] == ["<pad>", "<S>", "</S>", "<UNK>", "the", "cat"]


def test_a_vocabulary_without_the_needed_words_names_them() -> None:
    with pytest.raises(ValueError, match=r"`vocab` lacks </S>, <UNK>; every vocabulary of an ELMo needs them\."):
        VocabularyCodec({"<pad>": 0, "<S>": 1, "the": 2})
    with pytest.raises(ValueError, match=r"`vocab` lacks <pad>;"):
        VocabularyCodec({word: number for word, number in VOCABULARY.items() if word != "<pad>"})


def test_vocabulary_lines_are_numbered_from_one() -> None:
    vocabulary = read_vocabulary(["<S>\n", "</S>\n", "  <UNK> \r\n", "the\n", "New York\n", "cat"])
    assert vocabulary == {"<pad>": 0, "<S>": 1, "</S>": 2, "<UNK>": 3, "the": 4, "New York": 5, "cat": 6}


def test_of_a_word_on_two_lines_the_later_counts_and_both_keep_their_number() -> None:
    assert read_vocabulary(["the", "cat", "the", "sat"]) == {"<pad>": 0, "cat": 2, "the": 3, "sat": 4}


def test_a_maxtermid_line_is_no_word_and_takes_no_number() -> None:
    assert read_vocabulary(["the", "!!!MAXTERMID", "cat"]) == {"<pad>": 0, "the": 1, "cat": 2}


def test_a_padding_line_takes_a_number_but_stays_unreachable() -> None:
    vocabulary = read_vocabulary(["<S>", "</S>", "<UNK>", "<pad>", "cat"])
    assert vocabulary == {"<pad>": 0, "<S>": 1, "</S>": 2, "<UNK>": 3, "cat": 5}
    assert VocabularyCodec(vocabulary).encode(["<pad>", "cat"]).tolist() == [3, 5]


def test_padding_and_boundaries_of_a_vocabulary_are_special() -> None:
    codec = VocabularyCodec({"<pad>": 0, "<S>": 1, "</S>": 2, "<UNK>": 3, "the": 4, "cat": 5})
    assert codec.is_special(np.arange(6)).tolist() == [True, True, True, False, False, False]


def test_the_number_of_an_earlier_duplicate_line_decodes_to_unknown() -> None:
    codec = VocabularyCodec(read_vocabulary(["<S>", "</S>", "<UNK>", "the", "cat", "the"]))
    assert [codec.decode(np.int64(word_id)) for word_id in (4, 5, 6)] == ["<UNK>", "cat", "the"]


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\ufeff<S>\n</S>\n<UNK>\nferry\n", encoding="utf-8")
    symbols = read_vocabulary_file(str(tmp_path / "words.txt"))
    assert [symbols[word] for word in ("<S>", "</S>", "<UNK>", "ferry")] == [1, 2, 3, 4]

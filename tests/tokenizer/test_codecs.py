"""Words to ids and back: against AllenNLP's rule and AllenNLP's own ids; code points, by rows written out."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from elmo_hf import ElmoTokenizer
from elmo_hf.conversion.readers.manylangs import name_symbols
from elmo_hf.model.tokenization_elmo import CharacterCodec, CodePointCodec, VocabularyCodec, read_vocabulary
from tests.helpers.checkpoints import FIXTURES, GOLDEN_CASES
from tests.helpers.rows import BOTH, CHARACTERS_ALONE, WORDS_ALONE

# Cut after 48 bytes, or not: inside a character of two, three or four bytes, and just behind one.
EDGE_WORDS = ["x" * 47, "x" * 48, "x" * 49, "é" * 24, "a" + "é" * 24, "ab" + "🙂" * 12, "x" * 47 + "猫"]
EDGE_WORDS += ["word", "", "\ud800", "lone\ud83dsurrogate", "\ud83d\ude42", "nul\0byte", "\0", "\U0010ffff"]
EDGE_WORDS += ["".join(map(chr, range(1, 40))), "👩‍👩‍👧‍👦", "n\u0303o\u0308e\u0301", "ñöé", "\ufeffbom"]
EDGE_WORDS += ["<S>", "</S>", "<s>", "<S> ", "<pad>", "<UNK>", " a b\t", "nbsp\u00a0in"]


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
def test_a_word_has_allennlps_row(max_word_length: int) -> None:
    codec = CharacterCodec(max_word_length)
    words = random_words(1500, seed=max_word_length) + EDGE_WORDS
    random.Random(5).shuffle(words)
    rows = codec.encode(words)
    assert rows.tolist() == [allennlp_row(word, max_word_length) for word in words]
    assert (rows.dtype, codec.encode([]).shape) == (np.int16, (0, max_word_length))


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
    words = [word.encode("utf-8", "ignore").decode() for word in [*EDGE_WORDS, *random_words(900, seed=2)]]
    short = [word for word in words if len(word.encode()) <= max_word_length - 2]
    assert len(short) > 100
    assert [codec.decode(row) for row in codec.encode(short)] == short


def test_decoding_marks_the_incomplete_character_of_a_cut_word_and_tells_the_empty_word_from_padding() -> None:
    words = {"猫" * 3: "猫猫猫", "x" * 12: "x" * 9, "x" * 8 + "é": "x" * 8 + "\ufffd", "lone\ud800r": "loner", "": ""}
    # Two of three bytes, three of four.
    words |= {"x" * 7 + "猫": "x" * 7 + "\ufffd", "x" * 6 + "🙂y": "x" * 6 + "\ufffd"}
    codec = CharacterCodec(11)
    assert [codec.decode(row) for row in codec.encode([*words])] == [*words.values()]
    assert codec.decode(np.zeros(11, dtype=np.int64)) == "<pad>"


def test_words_have_their_number_in_the_vocabulary_and_others_are_unknown() -> None:
    codec = VocabularyCodec({"<pad>": 0, "<S>": 1, "</S>": 2, "<UNK>": 3, "the": 4, "cat": 5})
    ids = codec.encode(["<S>", "cat", "the", "cat", "</S>"])
    assert (ids.tolist(), ids.dtype, codec.encode([]).shape) == ([1, 5, 4, 5, 2], np.int64, (0,))
    others = ["dog", "The", "", " cat", "<s>", "\ud800", "<UNK>", "<pad>"]
    assert codec.encode(others).tolist() == [3] * len(others)
    assert [codec.decode(word_id) for word_id in np.arange(6)] == ["<pad>", "<S>", "</S>", "<UNK>", "the", "cat"]
    assert codec.is_special(np.arange(6)).tolist() == [True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("lines", "ids"),
    [
        (["<S>\n", "  <UNK> \r\n", "New York\n", "cat"], {"<S>": 1, "<UNK>": 2, "New York": 3, "cat": 4}),
        (["the", "cat", "the", "sat"], {"cat": 2, "the": 3, "sat": 4}),  # a repeated word keeps its last number
        (["the", "!!!MAXTERMID", "cat"], {"the": 1, "cat": 2}),
        (["the", "<pad>", "cat"], {"the": 1, "cat": 3}),  # the line takes a number that no word has
    ],
)
def test_lines_of_a_vocabulary_are_numbered_from_one(lines: list[str], ids: dict[str, int]) -> None:
    assert read_vocabulary(lines) == {"<pad>": 0} | ids


def test_a_file_may_begin_with_a_mark_and_the_number_of_an_earlier_duplicate_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\ufeff<S>\n</S>\n<UNK>\nthe\ncat\nthe\n", encoding="utf-8")
    codec = VocabularyCodec.of_file(str(tmp_path / "words.txt"))
    assert codec.encode(["<S>", "the"]).tolist() == [1, 6]
    assert [codec.decode(np.int64(word_id)) for word_id in (4, 5, 6)] == ["<UNK>", "cat", "the"]


C = 7
A, B, E, DAY, BOS, EOS, OOV, PAD, BOW, EOW = range(1, 11)
UNKNOWN_WORD, WORD_BOS, WORD_EOS, WORD_PAD, WORD_AB, WORD_DAY, _, WORD_ABABA = range(11, 19)

ROWS = {
    "known": ("ab", [EOW, A, B, BOW, PAD, PAD, PAD], WORD_AB),
    "unknown character": ("axb", [EOW, A, OOV, B, BOW, PAD, PAD], UNKNOWN_WORD),
    "beyond ASCII": ("日", [EOW, DAY, BOW, PAD, PAD, PAD, PAD], WORD_DAY),
    "empty": ("", [EOW, BOW, PAD, PAD, PAD, PAD, PAD], UNKNOWN_WORD),
    "as long as the row": ("aéaba", [EOW, A, E, A, B, A, BOW], UNKNOWN_WORD),
    "cut, for the word as well": ("ababaXX", [EOW, A, B, A, B, A, BOW], WORD_ABABA),
    "begin": ("<bos>", [EOW, BOS, BOW, PAD, PAD, PAD, PAD], WORD_BOS),
    "end": ("<eos>", [EOW, EOS, BOW, PAD, PAD, PAD, PAD], WORD_EOS),
    "begin of another ELMo": ("<S>", [EOW, OOV, OOV, OOV, BOW, PAD, PAD], UNKNOWN_WORD),
    "the word <pad>": ("<pad>", [EOW, OOV, OOV, A, OOV, OOV, BOW], WORD_PAD),
    "names are not their text": ("<oov>", [EOW, OOV, OOV, OOV, OOV, OOV, BOW], UNKNOWN_WORD),
    "lone surrogate": ("a\ud800", [EOW, A, OOV, BOW, PAD, PAD, PAD], UNKNOWN_WORD),
    "astral": ("𝒳b", [EOW, OOV, B, BOW, PAD, PAD, PAD], UNKNOWN_WORD),
}


@pytest.mark.parametrize(("word", "row", "word_id"), ROWS.values(), ids=ROWS)
def test_a_word_has_its_row_of_characters_and_its_id(word: str, row: list[int], word_id: int) -> None:
    both, characters = CodePointCodec(BOTH, C, True), CodePointCodec(CHARACTERS_ALONE, C, True)
    assert both.encode([word]).tolist() == [[*row, word_id]]
    assert characters.encode([word]).tolist() == [row]
    words = CodePointCodec(WORDS_ALONE, C, False)
    assert words.encode([word]).tolist() == [word_id - 10]
    together = [each for each, _, _ in ROWS.values()]
    assert both.encode(together).tolist() == [[*row, word_id] for _, row, word_id in ROWS.values()]
    assert [codec.encode([]).shape for codec in (both, characters, words)] == [(0, C + 1), (0, C), (0,)]


@pytest.mark.parametrize(
    ("vocabulary", "words", "decoded"),
    [
        (BOTH, ["ab", "axb", "aé", "", "<bos>", "<eos>", "日"], ["ab", "a�b", "aé", "", "<bos>", "<eos>", "日"]),
        (CHARACTERS_ALONE, ["ab", "axb", "<bos>", "", "ababaXX"], ["ab", "a�b", "<bos>", "", "ababa"]),
        (WORDS_ALONE, ["ab", "axb", "<bos>", "ababaXX"], ["ab", "<oov>", "<bos>", "ababa"]),
    ],
    ids=["both", "characters", "words"],
)
def test_ids_become_words_again_and_boundaries_and_padding_are_special(
    vocabulary: dict[str, int], words: list[str], decoded: list[str]
) -> None:
    codec = CodePointCodec(vocabulary, C, vocabulary is not WORDS_ALONE)
    assert [codec.decode(ids) for ids in codec.encode(words)] == decoded
    padding = np.zeros((1, *codec.id_shape), dtype=np.int32)
    assert codec.decode(padding[0]) == "<pad>"
    ids = np.concatenate([codec.encode(["ab", "<bos>", "<S>", "<eos>", "<pad>"]), padding])
    assert codec.is_special(ids).tolist() == [False, True, False, True, False, True]


def test_the_tokenizer_puts_the_alphabets_own_boundaries_around_a_text() -> None:
    both = ElmoTokenizer(max_word_length=C, alphabet="code_points", word_splitter="whitespace", vocab=BOTH)
    inputs = both(["ab 日", "x"], padding=True, return_tensors="pt")
    assert inputs["input_ids"].dtype == torch.int64
    bos, ab, day, eos = ([*ROWS[name][1], ROWS[name][2]] for name in ("begin", "known", "beyond ASCII", "end"))
    assert inputs["input_ids"][0].tolist() == [bos, ab, day, eos]
    assert inputs["input_ids"][1].tolist() == [bos, [EOW, OOV, BOW, *[PAD] * 4, UNKNOWN_WORD], eos, [0] * (C + 1)]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert inputs.tokens(0) == ["<bos>", "ab", "日", "<eos>"]
    assert inputs.word_ids(0) == [None, 0, 1, None]
    assert both.decode(inputs["input_ids"][0]) == "<bos> ab 日 <eos>"
    assert both.decode(inputs["input_ids"][0], skip_special_tokens=True) == "ab 日"
    assert both("ab 日 é", max_length=3, truncation=True).tokens(0) == ["<bos>", "ab", "<eos>"]
    assert (both.pad_token_id, both.bos_token_id, both.eos_token_id, len(both)) == (0, BOS, EOS, len(BOTH))
    assert both.convert_ids_to_tokens(WORD_AB) == "w:ab"


def test_boundaries_are_not_cut_in_short_rows() -> None:
    characters = {"a": 0, "<bos>": 1, "<eos>": 2, "<oov>": 3, "<pad>": 4, "<bow>": 5, "<eow>": 6}
    codec = CodePointCodec(name_symbols(characters, {}, 7), 5, True)
    assert codec.encode(["<bos>"]).tolist() == [[7, 2, 6, 5, 5]]

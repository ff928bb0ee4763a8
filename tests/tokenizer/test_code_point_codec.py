"""Words to ids of code points and back, and the tokenizer on top: rows written out, and a vocabulary that is saved."""

import numpy as np
import pytest
import torch
from rows import BOTH, CHARACTERS_ALONE, WORDS_ALONE

from elmo_hf import ElmoTokenizer
from elmo_hf.conversion.readers.manylangs import name_symbols
from elmo_hf.tokenizer.code_point_codec import CodePointCodec

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

"""Raw text to words: by a table of shapes, compared with a gold treebank, and by a function of the user's own."""

import copy
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, pre_tokenizers
from transformers import AutoTokenizer
from word_splitting import measure

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding.window_vectors import Selection, embed_window
from elmo_hf.model.tokenization_elmo import PTB, make_word_splitter
from tests.helpers.checkpoints import shared

# Text and its words; words are joined by blanks here, for none of them holds one.
PTB_WORDS = {
    "only_blanks": (" \t\n\u00a0\u3000", ""),
    "punctuation": ("Hello, world; (yes) [no] {so}: end.", "Hello , world ; ( yes ) [ no ] { so } : end ."),
    "white_space": ("a\tb\n\nc\u00a0d\u3000e\r\nf", "a b c d e f"),
    "not": ("Don't. isn't? DON'T won’t", "Do n't . is n't ? DO N'T wo n’t"),
    "clitics": ("I'm they'll she’d you've we're it’s I'd've", "I 'm they 'll she ’d you 've we 're it ’s I 'd 've"),
    "possessive": ("Smith's the dogs' JOHN'S", "Smith 's the dogs ' JOHN 'S"),
    "no_clitic": ("o'sullivan 'small", "o ' sullivan ' small"),
    "cannot": ("cannot Cannot CANNOT", "can not Can not CAN NOT"),
    "gonna": ("gonna Gotta wanna gonnas cannot_be", "gon na Got ta wan na gonnas cannot_be"),
    "abbreviations": ("Mr. Smith vs. Dr. No Inc., etc.", "Mr. Smith vs. Dr. No Inc . , etc ."),
    "initials": ("J. R. Tolkien and J.K. Rowling", "J. R. Tolkien and J.K. Rowling"),
    "letters_and_stops": ("U.S. i.e., at 5 p.m. in the U.S.", "U.S. i.e. , at 5 p.m. in the U.S."),
    "stops of dotted letters": (
        "Mr. X Mr., X U.S.A a.k.a. xa.b.c. p.m",
        "Mr. X Mr . , X U . S . A a.k.a. xa . b.c. p . m",
    ),
    "web": (
        "See http://www.example.org/a?b=c, www.x.com. and (https://y.de/z).",
        "See http://www.example.org/a?b=c , www.x.com . and ( https://y.de/z ) .",
    ),
    "web_without_scheme": ("amazon.com/x/y. to me.you+x@mail.co.uk.", "amazon.com/x/y . to me.you+x@mail.co.uk ."),
    "files": ("report.pdf, index.html end.Next", "report.pdf , index.html end . Next"),
    "numbers": ("$3,500.50 at 7:45, 24/7 3.14159. 50%", "$ 3,500.50 at 7:45 , 24/7 3.14159 . 50 %"),
    "hyphens": ("well-known e-mail 2-1 re- -x", "well-known e-mail 2-1 re - - x"),
    "dashes": ("so -- no---yes a—b a–b and/or", "so -- no --- yes a — b a – b and / or"),
    "closed after an 8": ("(7 or 8) 8-) pages 8] 8/ 9)", "( 7 or 8 ) 8-) pages 8 ] 8 / 9 )"),
    "emoticons": ("Hi :-) ok ;) no :( =P 8D x:) (:)", "Hi :-) ok ;) no :( =P 8D x : ) ( : )"),
    "ellipsis": ("Well... wait… what.. end", "Well ... wait … what .. end"),
    "runs": ("what?! no!! ***bold*** a==b", "what ?! no !! *** bold *** a == b"),
    "quotes": (
        "\"Yes,\" he 'said'. “Yes” ‘no’ «so» ``x''",
        "\" Yes , \" he ' said ' . “ Yes ” ‘ no ’ « so » ` ` x ' '",
    ),
    "irish": ("O'Brien O’Neil I'LL", "O'Brien O’Neil I'LL"),
    "no clitics": ("'tis 'Twas more'n d'ye gimme lemme", "' tis ' Twas more ' n d ' ye gimme lemme"),
    "marks inside words": ("foo.bar a=b o'clock '90s €5 main.py", "foo . bar a = b o ' clock ' 90s € 5 main . py"),
    "hyphens at the edge": ("-5 pre- and U.S.-led", "- 5 pre - and U.S. - led"),
    "units": ("7:45pm 1.5m 10km 3M 7pm", "7:45 pm 1.5 m 10km 3M 7pm"),
    "underscores": ("snake_case __x__", "snake_case __x__"),
    "signs": ("AT&T C++ @user #tag a+b", "AT & T C ++ @ user # tag a + b"),
    "accents": ("naïve Übergröße, Ελλάδα. Привет!", "naïve Übergröße , Ελλάδα . Привет !"),
    "combining_marks": ("e\u0301tat n\u0303 हिन्दी", "e\u0301tat n\u0303 हिन्दी"),
    "mark_without_letter": ("☃️ +\u0301", "☃️ +\u0301"),
    "chinese_runs_are_not_split": ("猫が窓。你好，世界", "猫が窓 。 你好 ， 世界"),
    "emoji": ("😀😀a👍 👩\u200d👧 a\0b", "😀 😀 a 👍 👩 \u200d 👧 a \0 b"),
}

FRAGMENTS = [" ", "  ", "\n", "\u00a0", "\u3000", "\u2028", "\t", ".", "..", ",", "'", "’", "n't", "'s", "-", "--", "/"]
FRAGMENTS += [":", ")", "@", "_", "www.", "http://", ".com", "Mr.", "U.S.", "can", "not", "gonna", "7", "1,000", "Word"]
FRAGMENTS += ["x", "é", "e\u0301", "\u0301", "猫", "😀", "\u200d", "\0", "\x1c", "\x85", "\ufeff", "½", "२", "$", "+"]


def random_texts(count: int, seed: int) -> list[str]:
    """Texts of fragments that the shapes are about, and of any code points but surrogates."""
    generator = random.Random(seed)
    texts = ["".join(generator.choices(FRAGMENTS, k=generator.randint(0, 30))) for _ in range(count)]
    for _ in range(count):
        codes = (generator.choice([generator.randint(0, 0x2FF), generator.randint(0, 0x10FFFF)]) for _ in range(30))
        texts.append("".join(chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF))
    return texts


def words_of(name: str, text: str) -> list[str]:
    return [word for word, _ in make_word_splitter(name).pre_tokenize_str(text)]


@pytest.mark.parametrize(("text", "words"), PTB_WORDS.values(), ids=PTB_WORDS.keys())
def test_ptb_splits_as_the_treebank_does(text: str, words: str) -> None:
    assert words_of("ptb", text) == words.split()


def test_whitespace_splits_on_white_space_alone() -> None:
    assert words_of("whitespace", " \t\n\u00a0\u3000") == []
    text = " Hello, world.\tb\n\nc\u00a0d\u3000e\r\n😀😀 don't! "
    assert words_of("whitespace", text) == ["Hello,", "world.", "b", "c", "d", "e", "😀😀", "don't!"]


@pytest.mark.parametrize("name", ["ptb", "whitespace"])
def test_offsets_give_the_words_which_hold_no_white_space_and_leave_out_white_space_alone(name: str) -> None:
    splitter = make_word_splitter(name)
    for text in random_texts(3000, seed=11):
        end_of_previous = 0
        for word, (start, end) in splitter.pre_tokenize_str(text):
            assert end_of_previous <= start < end, text
            assert text[start:end] == word, text
            # These four separators are white space to Python only.
            assert len(word.translate(dict.fromkeys(range(0x1C, 0x20), "x")).split()) == 1, text
            assert not text[end_of_previous:start].strip(), text
            end_of_previous = end
        assert not text[end_of_previous:].strip(), text


@pytest.mark.parametrize(("part", "num_words"), [("dev", 25147), ("test", 25094)])
def test_ptb_agrees_with_the_english_web_treebank(part: str, num_words: int) -> None:
    agreement = measure(shared("data", "ud_english_ewt", f"en_ewt-ud-{part}.conllu.gz"))
    assert agreement.num_gold == num_words
    assert agreement.f1 >= 0.97, agreement


@pytest.mark.parametrize("unit", ["a.", "xa.b.", "aa.", "a@", "a-", "'t", "1,"])
def test_long_text_without_blanks_is_split_by_rules_that_do_not_look_further_the_longer_it_is(unit: str) -> None:
    """Unbounded repetition would take half a minute for one of these."""
    text = unit * 20_000 + "bb"
    words = make_word_splitter("ptb").pre_tokenize_str(text)
    assert "".join(word for word, _ in words) == text


def test_trying_dotted_letters_only_where_they_begin_changes_no_word() -> None:
    only_there = r"(?<!\p{L}\.\p{L}\.)"
    everywhere = [pattern.replace(only_there, "") for pattern in PTB]
    assert everywhere != list(PTB)
    reference = pre_tokenizers.Split(Regex("|".join(everywhere)), behavior="removed", invert=True)
    splitter = make_word_splitter("ptb")
    generator = random.Random(7)
    fragments = ["a.", "b.", "c.", "É.", "a", "J", ".", " ", "-", "'", "1", "1.", "gif", "bb", "@", "/", "(", "\u0301"]
    for _ in range(3000):
        text = "".join(generator.choices(fragments, k=12))
        assert splitter.pre_tokenize_str(text) == reference.pre_tokenize_str(text), text


TEXT = "我们坐在河岸上。 We sat."


def split(text: str) -> list[str]:
    """Chinese by characters, the rest at blanks; keeps the blanks, as jieba does."""
    return [part for piece in text.split(" ") for part in (*(piece if ord(piece[0]) > 255 else [piece]), " ")][:-1]


def test_a_function_gives_the_words_and_their_offsets() -> None:
    tokenizer = ElmoTokenizer(word_splitter=split)
    words = [*"我们坐在河岸上。", "We", "sat."]
    assert tokenizer.tokenize(TEXT) == words
    encoded = tokenizer(TEXT, return_offsets_mapping=True, return_tensors="pt")
    assert [TEXT[start:end] for start, end in encoded["offset_mapping"][0, 1:-1].tolist()] == words
    given = tokenizer([words], is_split_into_words=True, return_tensors="pt")
    assert encoded["input_ids"].equal(given["input_ids"])
    assert encoded.char_to_token(3) == 4
    twice = ElmoTokenizer(word_splitter=list)
    assert twice("看看", return_offsets_mapping=True)["offset_mapping"] == [(0, 0), (0, 1), (1, 2), (0, 0)]


def test_texts_are_embedded_by_the_words_of_the_function_which_a_run_keeps(tiny_folder: Path) -> None:
    model = ElmoModel.from_pretrained(tiny_folder).eval()
    splitters: list[Any] = [split, str.split, "whitespace"]
    tokenizers = [ElmoTokenizer.from_pretrained(tiny_folder, word_splitter=each) for each in splitters]
    jobs = [Selection().job(model, tokenizer) for tokenizer in tokenizers]
    assert len({job["tokenizer"] for job in jobs}) == 3
    texts = [TEXT, tokenizers[0].tokenize(TEXT)]
    of_text, of_words = (dict(embed_window(model, tokenizers[0], [text], Selection("mix")))[0] for text in texts)
    np.testing.assert_array_equal(of_text["vectors"], of_words["vectors"])


def test_copies_keep_the_function_and_saved_folders_split_at_white_space(tmp_path: Path) -> None:
    tokenizer = ElmoTokenizer(word_splitter=split)
    for each in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert each.tokenize(TEXT) == tokenizer.tokenize(TEXT)
    tokenizer.save_pretrained(tmp_path)
    for loader in (ElmoTokenizer, AutoTokenizer):
        loaded = loader.from_pretrained(tmp_path)
        assert loaded.word_splitter == "whitespace"
        assert loaded.tokenize(TEXT) == ["我们坐在河岸上。", "We", "sat."]
        assert loader.from_pretrained(tmp_path, word_splitter=split).tokenize(TEXT) == tokenizer.tokenize(TEXT)

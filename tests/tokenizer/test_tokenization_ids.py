"""`ElmoTokenizer`: ids back to words, copies, settings, `pad`, collators, datasets; reserved words."""

import copy
import inspect
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_codecs import allennlp_row
from transformers import AutoTokenizer, DataCollatorForTokenClassification, DataCollatorWithPadding

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.allennlp import ELMoCharacterMapper
from elmo_hf.model.tokenization_elmo import CharacterCodec
from tests.helpers.checkpoints import run_python
from tests.helpers.fresh_process import without
from tests.helpers.language_models import words_file
from tests.helpers.rows import BARE, BOTH, CHARACTERS_ALONE, SPLIT, WORDS_ALONE, C, mask, rows
from tests.helpers.tiny_inputs import TINY, assert_outputs_close


def test_special_tokens_have_single_ids(tokenizer: ElmoTokenizer) -> None:
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 257, 258)
    assert sorted(tokenizer.all_special_ids) == [0, 257, 258]
    assert tokenizer.convert_ids_to_tokens(tokenizer.all_special_ids) == ["<S>", "</S>", "<pad>"]
    assert len(tokenizer) == tokenizer.vocab_size == 262
    assert tokenizer.num_special_tokens_to_add() == 2
    assert tokenizer.num_special_tokens_to_add(pair=True) == 4


def test_words_and_ids_convert_both_ways(tokenizer: ElmoTokenizer) -> None:
    words = ["<S>", "naïve", "", "<pad>", "猫", "</S>"]
    ids = tokenizer.convert_tokens_to_ids(words)
    assert ids == [CharacterCodec(C).encode([word])[0].tolist() for word in words]
    assert tokenizer.convert_ids_to_tokens(ids) == words
    assert tokenizer.convert_tokens_to_ids("naïve") == ids[1]
    assert tokenizer.convert_ids_to_tokens(ids[1]) == "naïve"
    names = ["<pad>", "<0x00>", "<0x41>", "<0xFF>", "<S>", "</S>", "<W>", "</W>", "<filler>"]
    assert [tokenizer.convert_ids_to_tokens(number) for number in (0, 1, 66, *range(256, 262))] == names
    assert tokenizer.tokenize("Don't go.") == ["Do", "n't", "go", "."]
    assert tokenizer.encode("a b") == rows("<S> a b </S>")


def test_decoding_joins_words_by_blanks(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer(["Don't, 猫!", "", "a"], padding=True, return_tensors="pt")["input_ids"]
    texts = ["Do n't , 猫 !", "", "a"]
    assert tokenizer.batch_decode(encoded, skip_special_tokens=True) == texts
    assert tokenizer.decode(encoded, skip_special_tokens=True) == texts
    assert tokenizer.decode(encoded[2]) == "<S> a </S> <pad> <pad> <pad> <pad>"
    assert (tokenizer.decode([]), tokenizer.batch_decode([[], []])) == ("", ["", ""])


def test_the_text_pad_is_a_word_and_no_padding(tokenizer: ElmoTokenizer) -> None:
    options = {"padding": "max_length", "max_length": 5, "return_special_tokens_mask": True}
    encoded = tokenizer([["a", "<pad>"]], is_split_into_words=True, **options)
    assert encoded["attention_mask"] == [[1, 1, 1, 1, 0]]
    ids, mask = encoded["input_ids"][0], [1, 0, 0, 1, 1]
    assert encoded["special_tokens_mask"] == [mask]
    assert tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True) == mask
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a <pad>"


def test_a_word_embedding_gets_one_id_per_word(word_tokenizer: ElmoTokenizer) -> None:
    encoded = word_tokenizer(["the cat saß", "dog"], padding=True, return_tensors="pt")
    assert encoded["input_ids"].dtype == torch.int64
    assert encoded["input_ids"].tolist() == [[1, 6, 5, 7, 2], [1, 3, 2, 0, 0]]
    assert encoded["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert word_tokenizer(["<pad>"], is_split_into_words=True)["input_ids"] == [1, 3, 2]
    assert word_tokenizer.batch_decode(encoded["input_ids"], skip_special_tokens=True)[0] == "the cat saß"
    assert word_tokenizer.decode([]) == ""
    ids = sorted(word_tokenizer.get_vocab().values())
    assert word_tokenizer.convert_tokens_to_ids(word_tokenizer.convert_ids_to_tokens(ids)) == ids
    assert (word_tokenizer.pad_token_id, word_tokenizer.bos_token_id, word_tokenizer.unk_token_id) == (0, 1, 3)


SETTINGS = ("token_encoder", "max_word_length", "word_splitter", "padding_side", "truncation_side", "add_boundaries")
OF_THE_LEFT = {"word_splitter": "whitespace", "padding_side": "left", "truncation_side": "left"}
MADE: dict[str, dict[str, Any]] = {
    "characters": OF_THE_LEFT | {"max_word_length": 13},
    "characters and words to predict": {"words_file": "words.txt"},
    "words": {"token_encoder": "word_embedding", "vocab_file": "words.txt"},
    "code points": {"alphabet": "code_points", "vocab": BOTH, "max_word_length": 7, "words_file": "words.txt"},
    "code points of characters": {"alphabet": "code_points", "vocab": CHARACTERS_ALONE, "add_boundaries": False},
    "code points of words": {"alphabet": "code_points", "vocab": WORDS_ALONE, "token_encoder": "word_embedding"},
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_copies_and_saved_tokenizers_give_the_same_ids_and_have_its_settings(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("<S>\n</S>\n<UNK>\nthe\ncat\nthe\nsaß\n", encoding="utf-8")
    original = ElmoTokenizer(**made)
    original.save_pretrained("saved")
    Path("words.txt").unlink()
    loaded = [each.from_pretrained("saved") for each in (ElmoTokenizer, AutoTokenizer)]
    texts = ["Don't stop. extraordinarily", "the saß ababaXX 日", "<S> <bos> ab"]
    words = [text.split() for text in texts]
    for each in (*loaded, copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert [getattr(each, name) for name in SETTINGS] == [getattr(original, name) for name in SETTINGS]
        assert each(texts, padding=True).data == original(texts, padding=True).data
        assert each(words, is_split_into_words=True).data == original(words, is_split_into_words=True).data
        assert each.get_vocab() == original.get_vocab()
        assert each.predicted_words == original.predicted_words
        if each.predicted_words:
            classes = each.word_classes([original.boundaries[0], "the", "other", original.boundaries[1]])
            assert classes.tolist() == [0, 5, 2, 1]
    assert pickle.loads(pickle.dumps(original("the cat"))).tokens() == original("the cat").tokens()


def test_a_tokenizer_remembers_every_argument(tokenizer: ElmoTokenizer) -> None:
    arguments = inspect.signature(ElmoTokenizer.__init__).parameters
    is_remembered = {name: name in tokenizer.init_kwargs for name in arguments}
    assert [name for name, is_there in is_remembered.items() if not is_there] == ["self", "vocab_file", "kwargs"]


def test_tokens_can_have_other_names_which_changes_no_batch(tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    named = ElmoTokenizer(max_word_length=tokenizer.max_word_length)
    named.pad_token, named.cls_token, named.sep_token_id = named.eos_token, "<S>", 258
    named.add_tokens(["<S>"])
    named.save_pretrained(tmp_path)
    for each in (named, ElmoTokenizer.from_pretrained(tmp_path)):
        assert (each.pad_token_id, each.cls_token_id, each.sep_token, each.mask_token) == (258, 257, "</S>", None)
        assert len(each) == 262
        assert each(["a", "b c"], padding=True).data == tokenizer(["a", "b c"], padding=True).data
        assert each.pad([each("a"), each("b c")]).data == tokenizer.pad([tokenizer("a"), tokenizer("b c")]).data


def test_a_folder_names_no_path_and_a_prefix_is_that_of_every_file(tmp_path: Path) -> None:
    path = str(words_file(tmp_path, ["<S>", "</S>", "<UNK>", "the"]))
    tokenizer = ElmoTokenizer(words_file=path)
    assert tokenizer.init_kwargs["words_file"] == path
    tokenizer.save_pretrained(tmp_path / "saved", filename_prefix="my")
    assert "words_file" not in json.loads((tmp_path / "saved" / "my-tokenizer_config.json").read_text(encoding="utf-8"))
    assert (tmp_path / "saved" / "my-words.txt").is_file()
    assert not (tmp_path / "saved" / "words.txt").exists()


WORD_LISTS = {"words_file": "words.txt", "vector_words_file": "vector_words.txt"}


def vocabulary_sizes(tokenizer: ElmoTokenizer) -> list[int | None]:
    vector_codec = tokenizer.vector_codec
    return [tokenizer.num_word_classes, None if vector_codec is None else len(vector_codec.lines)]


@pytest.mark.parametrize("loader", [ElmoTokenizer, AutoTokenizer])
def test_a_tokenizer_reads_the_words_it_was_saved_with_and_none_that_lie_in_its_folder(
    loader: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    path = str(words_file(tmp_path, ["<S>", "</S>", "<UNK>", "the"]))
    folder = tmp_path / "saved"
    # One after the other in the same folder, with the two sizes that it must have when loaded.
    tokenizers: list[tuple[dict[str, Any], list[int | None]]] = [
        (dict.fromkeys(WORD_LISTS, path), [4, 4]),
        ({"words_file": path}, [4, None]),
        ({"vector_words_file": path}, [None, 4]),
        ({}, [None, None]),
        ({"token_encoder": "word_embedding", "vocab_file": path}, [4, None]),
    ]
    for arguments, sizes in tokenizers:
        caplog.clear()
        ElmoTokenizer(**arguments).save_pretrained(folder)
        loaded = loader.from_pretrained(folder)
        assert vocabulary_sizes(loaded) == sizes
        loaded.save_pretrained(folder)
        assert vocabulary_sizes(loader.from_pretrained(folder)) == sizes
        foreign = {file for name, file in WORD_LISTS.items() if name not in arguments}
        assert {file for file in WORD_LISTS.values() if f"`{file}` in {folder} is not read" in caplog.text} == foreign
    caplog.clear()
    paths = {name: str(folder / file) for name, file in WORD_LISTS.items()}  # as the warning advises
    assert all((folder / file).is_file() for file in WORD_LISTS.values())
    loader.from_pretrained(folder, **paths).save_pretrained(folder)
    assert vocabulary_sizes(loader.from_pretrained(folder)) == [4, 4]
    assert not caplog.text


def test_a_folder_that_does_not_name_its_files_of_words_has_all_that_lie_in_it(tmp_path: Path) -> None:
    ElmoTokenizer().save_pretrained(tmp_path)
    config_file = tmp_path / "tokenizer_config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    del config["saved_vocabularies"]
    config_file.write_text(json.dumps(config), encoding="utf-8")
    for file in WORD_LISTS.values():
        words_file(tmp_path, ["<S>", "</S>", "<UNK>", "the"], file)
    assert vocabulary_sizes(ElmoTokenizer.from_pretrained(tmp_path)) == [4, 4]


CONVERT = {"lists": np.ndarray.tolist, "arrays": np.asarray, "tensors": torch.from_numpy}


@pytest.mark.parametrize("as_mapping", [False, True], ids=["list_of_texts", "mapping_of_lists"])
@pytest.mark.parametrize("kind", CONVERT)
def test_pad_returns_what_came_in(tokenizer: ElmoTokenizer, kind: str, as_mapping: bool) -> None:
    encoded = [tokenizer(text, return_tensors="np", **BARE) for text in ("a b", "", "c")]
    examples: Any = [{key: CONVERT[kind](value[0]) for key, value in each.items()} for each in encoded]
    if as_mapping:
        examples = {key: [example[key] for example in examples] for key in examples[0]}
    for options, expected in (
        ({}, ["a b", "_ _", "c _"]),
        ({"padding_side": "left", "pad_to_multiple_of": 3}, ["_ a b", "_ _ _", "_ _ c"]),
        ({"padding": "max_length", "max_length": 4}, ["a b _ _", "_ _ _ _", "c _ _ _"]),
    ):
        padded = tokenizer.pad(examples, **options)
        assert type(padded["input_ids"]) is {"lists": list, "arrays": np.ndarray, "tensors": torch.Tensor}[kind]
        lists = {key: value if kind == "lists" else value.tolist() for key, value in padded.items()}
        whole = {"input_ids": [*map(rows, expected)], "attention_mask": [*map(mask, expected)]}
        assert json.dumps(lists) == json.dumps(whole)  # in which 1 is not 1.0
    if kind != "lists":
        dtypes = [str(padded[key].dtype) for key in ("input_ids", "attention_mask")]
        assert dtypes == {"arrays": ["int64", "int64"], "tensors": ["torch.int64", "torch.int64"]}[kind]


def test_pad_gives_each_key_its_own_value_and_leaves_labels_alone(tokenizer: ElmoTokenizer) -> None:
    examples = [{"input_ids": rows(words), "labels": [1] * len(words.split())} for words in ("a b", "c")]
    flags = {"token_type_ids": [1], "special_tokens_mask": [0]}
    padded = tokenizer.pad([examples[0] | {key: value * 2 for key, value in flags.items()}, examples[1] | flags])
    assert dict(padded) == {
        "input_ids": [rows("a b"), rows("c _")],
        "labels": [[1, 1], [1]],
        "token_type_ids": [[1, 1], [1, 0]],
        "special_tokens_mask": [[0, 0], [0, 1]],
        "attention_mask": [[1, 1], [1, 0]],
    }
    assert "attention_mask" not in tokenizer.pad(examples, return_attention_mask=False)


def test_pad_keeps_a_batch_of_empty_texts(tokenizer: ElmoTokenizer) -> None:
    for both_are_empty in ({"input_ids": [[], []]}, [{"input_ids": []}, {"input_ids": []}]):
        assert dict(tokenizer.pad(both_are_empty)) == {"input_ids": [[], []], "attention_mask": [[], []]}
        padded = tokenizer.pad(both_are_empty, padding="max_length", max_length=2)
        assert dict(padded) == {"input_ids": [rows("_ _")] * 2, "attention_mask": [[0, 0]] * 2}


def test_pad_makes_numbers_of_python_those_of_torch(tokenizer: ElmoTokenizer) -> None:
    ids = {"input_ids": rows("a")}
    for label, dtype in ((0.5, torch.float32), ([0.5, 1.0], torch.float32), (np.ones(2), torch.float64)):
        labels = tokenizer.pad([ids | {"labels": label}] * 2, return_tensors="pt")["labels"]
        assert (labels.dtype, labels.tolist()) == (dtype, [np.asarray(label).tolist()] * 2)


@pytest.mark.parametrize(("side", "labels"), [("right", [4, -100]), ("left", [-100, 4])])
def test_collator_for_words_puts_labels_where_the_words_are(side: str, labels: list[int]) -> None:
    elmo = ElmoTokenizer(max_word_length=C, padding_side=side)
    features = [dict(elmo(text, add_special_tokens=False)) for text in ("a b", "c")]
    batch = DataCollatorForTokenClassification(elmo)([features[0] | {"labels": [2, 3]}, features[1] | {"labels": [4]}])
    assert batch["input_ids"].dtype == torch.int64
    assert batch["input_ids"].tolist() == [rows("a b"), rows("c _" if side == "right" else "_ c")]
    assert batch["labels"].tolist() == [[2, 3], labels]


@pytest.mark.parametrize("options", [{}, {"return_tensors": "np"}], ids=repr)
def test_a_dataset_maps_in_batches(tokenizer: ElmoTokenizer, options: dict[str, Any]) -> None:
    datasets = pytest.importorskip("datasets")
    texts = datasets.Dataset.from_dict({"words": [["a", "b"], ["c"], []]})
    mapped = texts.map(lambda batch: tokenizer(batch["words"], **SPLIT, **options), batched=True)
    expected = ["<S> a b </S>", "<S> c </S>", "<S> </S>"]
    assert mapped["input_ids"][:] == [*map(rows, expected)]
    assert mapped["attention_mask"][:] == [*map(mask, expected)]
    batch = DataCollatorWithPadding(tokenizer)(list(mapped.remove_columns("words")))
    assert batch["input_ids"].tolist() == [rows("<S> a b </S>"), rows("<S> c </S> _"), rows("<S> </S> _ _")]


def test_pad_takes_one_example_and_lays_out_word_ids(tokenizer: ElmoTokenizer, word_tokenizer: ElmoTokenizer) -> None:
    one = tokenizer.pad(tokenizer("a"), padding="max_length", max_length=4)
    assert dict(one) == {"input_ids": rows("<S> a </S> _"), "attention_mask": [1, 1, 1, 0]}
    padded = word_tokenizer.pad([{"input_ids": [1, 6, 2]}, {"input_ids": []}], padding_side="left")
    assert dict(padded) == {"input_ids": [[1, 6, 2], [0, 0, 0]], "attention_mask": [[1, 1, 1], [0, 0, 0]]}
    assert word_tokenizer.pad({"input_ids": [1, 2]}, padding="max_length", max_length=3)["input_ids"] == [1, 2, 0]


ADDED = {"[MASK]": 261, "new word": 262, "(a)": 263}
TEXT = "Say [MASK]!(a)new word(a b"
PARTS = ["Say", "[MASK]", "!", "(a)", "new word", "(a", "b"]


def row(word: str, length: int, added: dict[str, int] = ADDED) -> list[int]:
    """AllenNLP's row, with the 1 that it adds at the end."""
    special = [each + 1 for each in [258, added.get(word, 0), 259, *[260] * (length - 3)]]
    return special if word in added else allennlp_row(word, length)


def make_tokenizer() -> ElmoTokenizer:
    tokenizer = ElmoTokenizer(max_word_length=C, mask_token="[MASK]")
    tokenizer.add_tokens(["new word", "(a)", "<S>", "(a", "[MASK]"])
    return tokenizer


def test_the_mapper_takes_allennlps_tokens_to_add() -> None:
    mapper = ELMoCharacterMapper(tokens_to_add={"[MASK]": 2})
    assert [mapper.convert_word_to_char_ids(word) for word in PARTS] == [row(w, 50, {"[MASK]": 2}) for w in PARTS]


def test_a_reserved_word_is_one_id_in_words_and_in_raw_text_and_is_saved(tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    for tokenizer in (make_tokenizer(), ElmoTokenizer.from_pretrained(tmp_path)):
        assert tokenizer(PARTS, is_split_into_words=True).data == tokenizer(TEXT).data
        encoded = tokenizer(TEXT, return_offsets_mapping=True)
        assert encoded["input_ids"][1:-1] == [row(word, C, ADDED | {"(a": 264}) for word in PARTS]
        assert [TEXT[start:end] for start, end in encoded["offset_mapping"]] == ["", *PARTS, ""]
        assert tokenizer.decode(encoded["input_ids"], skip_special_tokens=True) == " ".join(PARTS)
        names = [tokenizer.convert_ids_to_tokens(number) for number in range(len(tokenizer))]
        assert names[261:] == ["<filler>", "[MASK]", "new word", "(a)", "(a"]
        assert tokenizer.get_vocab() == {name: number for number, name in enumerate(names)}


OF_THE_FOLDER = f"""
import torch
from transformers import AutoModel, AutoTokenizer
model, tokenizer = (each.from_pretrained("model", trust_remote_code=True) for each in (AutoModel, AutoTokenizer))
torch.save(model.eval()(**tokenizer({TEXT!r}, return_tensors="pt")).last_hidden_state.detach(), "found.pt")
"""


def test_a_model_makes_room_for_reserved_words_and_needs_no_package(tmp_path: Path) -> None:
    model, tokenizer = ElmoModel(ElmoConfig(**TINY)).eval(), make_tokenizer()
    model.resize_token_embeddings(len(tokenizer))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    inputs = tokenizer(TEXT, return_tensors="pt")
    expected = model(**inputs)
    run_python(without("elmo_hf", "conversion", "h5py") + OF_THE_FOLDER, tmp_path)
    assert_outputs_close(torch.load(tmp_path / "found.pt", weights_only=True), expected.last_hidden_state)
    with torch.no_grad():
        model.token_encoder.embedding.weight[262] += 1
    changed = (model(**inputs).token_embeddings - expected.token_embeddings).abs().sum(-1) > 0
    assert changed[0].tolist() == [word == "[MASK]" for word in ("<S>", *PARTS, "</S>")]

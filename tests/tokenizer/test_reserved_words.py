"""Reserved words (AllenNLP's `tokens_to_add`): rows, raw text, saved tokenizers, and a model with room for them."""

from pathlib import Path

import torch
from checkpoints import run_python
from fresh_process import without
from test_codecs import allennlp_row
from tiny_inputs import TINY, assert_outputs_close

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.allennlp import ELMoCharacterMapper

C = TINY["max_word_length"]
ADDED = {"[MASK]": 261, "new word": 262, "(a)": 263}
TEXT = "Say [MASK]!(a)new word(a b"
SPLIT = ["Say", "[MASK]", "!", "(a)", "new word", "(a", "b"]


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
    assert [mapper.convert_word_to_char_ids(word) for word in SPLIT] == [row(w, 50, {"[MASK]": 2}) for w in SPLIT]


def test_a_reserved_word_is_one_id_in_words_and_in_raw_text_and_is_saved(tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    for tokenizer in (make_tokenizer(), ElmoTokenizer.from_pretrained(tmp_path)):
        assert tokenizer(SPLIT, is_split_into_words=True).data == tokenizer(TEXT).data
        encoded = tokenizer(TEXT, return_offsets_mapping=True)
        assert encoded["input_ids"][1:-1] == [row(word, C, ADDED | {"(a": 264}) for word in SPLIT]
        assert [TEXT[start:end] for start, end in encoded["offset_mapping"]] == ["", *SPLIT, ""]
        assert tokenizer.decode(encoded["input_ids"], skip_special_tokens=True) == " ".join(SPLIT)
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
    assert_outputs_close(torch.load(tmp_path / "found.pt"), expected.last_hidden_state)
    with torch.no_grad():
        model.token_encoder.embedding.weight[262] += 1
    changed = (model(**inputs).token_embeddings - expected.token_embeddings).abs().sum(-1) > 0
    assert changed[0].tolist() == [word == "[MASK]" for word in ("<S>", *SPLIT, "</S>")]

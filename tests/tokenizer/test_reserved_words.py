"""Reserved words (AllenNLP's `tokens_to_add`): rows, raw text, saved tokenizers, and a model with room for them."""

from pathlib import Path

import torch
from checkpoints import run_python
from fresh_process import without
from test_word_codec import allennlp_row
from tiny_inputs import TINY, assert_outputs_close
from transformers import AutoTokenizer

from elmo_hf import ElmoConfig, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from elmo_hf.allennlp import ELMoCharacterMapper

C = TINY["max_word_length"]
WORDS = ["A", "[MASK]", "[MASK]!", "new word", "(a)", ""]


def reserved_row(added: int, length: int) -> list[int]:
    """AllenNLP's row of a word of `tokens_to_add`."""
    return [each + 1 for each in [258, added, 259, *[260] * (length - 3)]]


def make_tokenizer() -> ElmoTokenizer:
    tokenizer = ElmoTokenizer(max_word_length=C, mask_token="[MASK]")
    tokenizer.add_tokens(["new word", "(a)", "<S>", "(a", "[MASK]"])
    return tokenizer


def test_the_mapper_takes_allennlps_tokens_to_add() -> None:
    mapper = ELMoCharacterMapper(tokens_to_add={"[MASK]": 2, "(a)": 261})
    for word, row in {"[MASK]": reserved_row(2, 50), "(a)": reserved_row(261, 50), "b": allennlp_row("b", 50)}.items():
        assert mapper.convert_word_to_char_ids(word) == row


def test_a_reserved_word_is_one_id_in_words_and_in_raw_text_and_is_saved(tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    added = {"[MASK]": 261, "new word": 262, "(a)": 263}
    rows = [reserved_row(added[word], C) if word in added else allennlp_row(word, C) for word in WORDS]
    text = "Say [MASK]!(a)new word(a b"
    for tokenizer in (make_tokenizer(), *(each.from_pretrained(tmp_path) for each in (ElmoTokenizer, AutoTokenizer))):
        assert tokenizer(WORDS, is_split_into_words=True)["input_ids"][1:-1] == rows
        assert (tokenizer.convert_ids_to_tokens(rows), tokenizer.mask_token_id) == (WORDS, 262)
        assert tokenizer.tokenize(text) == ["Say", "[MASK]", "!", "(a)", "new word", "(a", "b"]
        offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"][1:-1]
        assert [text[start:end] for start, end in offsets] == tokenizer.tokenize(text)
        names = [tokenizer.convert_ids_to_tokens(number) for number in range(len(tokenizer))]
        assert names[261:] == ["<filler>", "[MASK]", "new word", "(a)", "(a"]
        assert {name: tokenizer.get_vocab()[name] for name in names} == {name: i for i, name in enumerate(names)}
        assert (
            tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == "Say [MASK] ! (a) new word (a b"
        )


OF_THE_FOLDER = """
import torch
from transformers import AutoModel, AutoTokenizer
model, tokenizer = (each.from_pretrained("model", trust_remote_code=True) for each in (AutoModel, AutoTokenizer))
torch.save(model.eval()(**tokenizer("a [MASK] b", return_tensors="pt")).last_hidden_state.detach(), "found.pt")
"""


def test_a_model_makes_room_for_reserved_words(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, tokenizer = ElmoForTokenClassification(ElmoConfig(**TINY)).eval(), make_tokenizer()
    before = model(**tokenizer("a b", return_tensors="pt")).logits
    model.resize_token_embeddings(len(tokenizer))
    assert_outputs_close(model(**tokenizer("a b", return_tensors="pt")).logits, before, 0)
    for part in (model.elmo, tokenizer):
        part.save_pretrained(tmp_path / "model")
    assert ElmoConfig.from_pretrained(tmp_path / "model").vocab_size == 266
    loaded, inputs = ElmoModel.from_pretrained(tmp_path / "model"), tokenizer("a [MASK] b", return_tensors="pt")
    expected = loaded(**inputs).last_hidden_state
    with torch.no_grad():
        loaded.token_encoder.embedding.weight[262] += 1
    changed = (loaded(**inputs).token_embeddings - model.elmo(**inputs).token_embeddings).abs().sum(-1)
    assert (changed[0] > 1e-3).tolist() == [False, False, True, False, False]
    run_python(without("elmo_hf", "conversion", "h5py") + OF_THE_FOLDER, tmp_path)
    assert_outputs_close(torch.load(tmp_path / "found.pt"), expected)

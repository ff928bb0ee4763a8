"""What language models refuse: each line is a call, the kind of error, and a word that its message must have."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

import elmo_hf
from elmo_hf import BiLMState, ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer, predict_words
from elmo_hf.language_model.corpus import Corpus
from tests.helpers.one_direction import forward_half
from tests.helpers.tiny_inputs import TINY
from tests.helpers.tiny_lm import SENTENCES, inputs_of, stream_of, tiny_lm, tokenizer_of

GAP = ["the", "___", "left"]


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.long)


def damaged(given: SimpleNamespace) -> ElmoForPreTraining:
    """A model whose table has NaN for the letter of `Yes`, the third sentence."""
    model = tiny_lm()
    with torch.no_grad():
        model.elmo.token_encoder.embedding.weight[ord("Y") + 1] = torch.nan
    return model


REFUSALS: dict[str, Callable[[SimpleNamespace], object]] = {
    "num_softmax_words": lambda given: ElmoForPreTraining(ElmoConfig(**TINY)),
    # A batch of sentences.
    "`attention_mask`, `backward_input_ids`, `labels`": lambda given: given.lm(
        **given.inputs, forward_targets=ones(7, 10)
    ),
    "`labels` must be a tensor of shape (7, 10)": lambda given: given.lm(**given.inputs | {"labels": ones(7, 9)}),
    "(batch, words, 11), found (7, 10)": lambda given: given.lm(**given.inputs | {"input_ids": ones(7, 10)}),
    "language models read `input_ids`": lambda given: given.lm(**given.inputs, inputs_embeds=torch.zeros(7, 10, 7)),
    # A window.
    "missing: `labels`": lambda given: given.lm(**given.stream, labels=ones(2, 12)),
    "missing: `backward_targets`": lambda given: forward_half(given.lm)(
        **{name: each for name, each in given.stream.items() if name != "backward_input_ids"}
    ),
    "[2, 5, 11]": lambda given: given.lm(**given.stream | {"backward_input_ids": ones(2, 5, 11)}),
    "`forward_targets` must": lambda given: given.lm(**given.stream | {"forward_targets": ones(2, 5)}),
    "`state.hidden` must": lambda given: given.lm(
        **given.stream, state=BiLMState(torch.zeros(2, 3, 14), torch.zeros(2, 3, 18))
    ),
    # Scores.
    "the string 'the ferry'": lambda given: given.lm.score(["the ferry"], given.tokenizer),
    "no sentences": lambda given: given.lm.score([], given.tokenizer),
    "`words.txt`": lambda given: Corpus.from_sentences(SENTENCES, ElmoTokenizer()),
    "softmax has 19 words, but the tokenizer knows 17": lambda given: tiny_lm(num_softmax_words=19).score(
        SENTENCES, given.tokenizer
    ),
    "NaN for sentence 2, counted": lambda given: damaged(given).score(
        SENTENCES, given.tokenizer, carries_state=True, num_rows=1
    ),
    # Gaps.
    "no gap": lambda given: predict_words(given.lm, given.tokenizer, ["the", "ferry"]),
    "the string 'a b'": lambda given: predict_words(given.lm, given.tokenizer, "a b", 1),
    "the string 'ten'": lambda given: predict_words(given.lm, given.tokenizer, GAP, candidates="ten"),
    "'Ada', 'boat': 2 of 3": lambda given: predict_words(
        given.lm, given.tokenizer, GAP, candidates=["ten", "Ada", "boat"]
    ),
    "out of bounds": lambda given: predict_words(given.lm, given.tokenizer, GAP, 3),
    "found 'left'": lambda given: predict_words(given.lm, given.tokenizer, GAP, direction="left"),
    "forward, found 'backward'": lambda given: predict_words(
        forward_half(given.lm), given.tokenizer, GAP, direction="backward"
    ),
    "no softmax over words": lambda given: elmo_hf.pipeline("fill-mask", str(given.encoder)),
    "knows none": lambda given: predict_words(given.lm, ElmoTokenizer(max_word_length=11), GAP),
}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    encoder, lm = tmp_path_factory.mktemp("encoder"), tiny_lm()
    ElmoModel(ElmoConfig(**TINY)).save_pretrained(encoder)
    return SimpleNamespace(
        lm=lm, encoder=encoder, tokenizer=tokenizer_of(lm), inputs=dict(inputs_of(lm)), stream=stream_of(lm)
    )


@pytest.mark.parametrize("word", REFUSALS)
def test_what_is_refused_is_named(word: str, given: SimpleNamespace) -> None:
    with pytest.raises((ValueError, RuntimeError, IndexError)) as error:
        REFUSALS[word](given)
    assert word in str(error.value)

"""The softmax over words: full and sampled, each against a slow obvious reference."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elmo_hf import ElmoConfig, ElmoForPreTraining
from elmo_hf.language_model.full_cross_entropy import cross_entropy
from elmo_hf.language_model.sampled_softmax import Candidates, draw_candidates, sampled_losses
from elmo_hf.model.language_model_elmo import WordSoftmax, block_size, word_log_probs
from tests.helpers.tiny_lm import WORDS, inputs_of, tiny_word_lm

P, V, N = 7, 23, 13
LARGE = 17_000  # so many words that 300 predictions are three blocks
TARGETS = torch.tensor([0, 22, 3, 3, 7, 1, 19, 0, 4, 11, 2, 3, 16])
DRAWN = Candidates(torch.tensor([3, 0, 14, 1, 9]), torch.tensor(11.0))


def word_softmax(dtype: torch.dtype = torch.float32, num_words: int = V) -> WordSoftmax:
    """A softmax whose logits are a few units apart."""
    module = WordSoftmax(ElmoConfig(projection_size=P, num_softmax_words=num_words))
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.to(dtype)


def hidden_vectors(dtype: torch.dtype = torch.float32, number: int = N) -> Tensor:
    return torch.randn(number, P, dtype=dtype, requires_grad=True)


def gradients_of(loss: Tensor, hidden: Tensor, module: WordSoftmax) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, [hidden, module.weight, module.bias])


def full(module: WordSoftmax, hidden: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(hidden, module.weight, module.bias, targets)


def by_autograd(module: WordSoftmax, hidden: Tensor, targets: Tensor) -> Tensor:
    """The full loss of a saved folder, which leaves the gradient to autograd."""
    return -word_log_probs(hidden, targets, module.weight, module.bias).sum()


def sampled(module: WordSoftmax, hidden: Tensor, targets: Tensor, candidates: Candidates = DRAWN) -> Tensor:
    return sampled_losses(module.weight, module.bias, [hidden], [targets], [candidates])[0]


def assert_close(actual: Any, expected: Any, tolerance: float, relative: float = 0) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=relative, check_dtype=False)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.float64, 1e-13)], ids=str)
@pytest.mark.parametrize(("num_words", "number"), [(V, 0), (V, 300), (LARGE, 300)])
def test_full_losses_and_gradients_are_those_of_all_logits_at_once(
    num_words: int, number: int, dtype: torch.dtype, error: float
) -> None:
    assert block_size(LARGE) == 128
    module, hidden = word_softmax(dtype, num_words), hidden_vectors(dtype, number)
    module.bias.data[3] = -200  # exp of a difference from the smallest logit is infinite in float32
    targets = torch.randint(num_words, (number,))
    table = module.weight, module.bias
    each = nn.functional.cross_entropy(nn.functional.linear(hidden, *table), targets, reduction="none")
    # The factor is that of a mean over the predictions and of bilm-tf's steps.
    factor = 20 / 300
    gradients = gradients_of(factor * each.sum(), hidden, module)
    assert_close(word_log_probs(hidden, targets, *table), -each, 10 * error)
    for loss in (full(module, hidden, targets), by_autograd(module, hidden, targets)):
        assert loss.dtype == dtype
        assert_close(loss, each.sum(), 0, error)
        actual = gradients_of(factor * loss, hidden, module)
        assert {gradient.dtype for gradient in actual} == {dtype}
        assert_close(actual, gradients, 10 * error)


@pytest.mark.parametrize("loss_of", [full, by_autograd, sampled])
def test_half_precision_gives_losses_in_float32_and_gradients_of_its_parameters(loss_of: Any) -> None:
    module, hidden = word_softmax(), hidden_vectors()
    expected = loss_of(module, hidden, TARGETS)
    gradients = gradients_of(expected, hidden, module)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = loss_of(module, hidden, TARGETS)
    half, half_hidden = word_softmax(torch.bfloat16), hidden.detach().bfloat16().requires_grad_()
    half.load_state_dict(module.state_dict())
    cases = [
        (mixed, hidden, module, torch.float32),
        (loss_of(half, half_hidden, TARGETS), half_hidden, half, torch.bfloat16),
    ]
    for loss, inputs, parameters, dtype in cases:
        assert loss.dtype == torch.float32
        assert_close(loss, expected, 0.2)
        actual = gradients_of(loss, inputs, parameters)
        assert {gradient.dtype for gradient in actual} == {dtype}
        assert_close(actual, gradients, 5e-2)


def sampled_reference(module: WordSoftmax, hidden: Tensor, targets: Tensor, candidates: Candidates) -> Tensor:
    """TensorFlow's formula, one prediction and one word at a time, in float64."""
    num_draws = candidates.num_draws.item()

    def corrected(vector: Tensor, word: int) -> Tensor:
        probability = math.log((word + 2) / (word + 1)) / math.log(V + 1)
        expected_count = 1 - (1 - probability) ** num_draws
        return vector @ module.weight[word].double() + module.bias[word].double() - math.log(expected_count)

    losses = []
    for vector, target in zip(hidden.double(), targets.tolist(), strict=True):
        true = corrected(vector, target)
        others = [corrected(vector, word) for word in candidates.words.tolist() if word != target]
        losses.append(torch.stack([true, *others]).exp().sum().log() - true)
    return torch.stack(losses).sum()


def test_sampled_losses_and_gradients_are_tensorflows_formula() -> None:
    """Of each direction by itself; a drawn word that is a prediction's target is left out of its sum."""
    module, hidden = word_softmax(), hidden_vectors()
    assert len(set(TARGETS.tolist()) & set(DRAWN.words.tolist())) == 3
    only = Candidates(torch.tensor([3, 1]), torch.tensor(4.0))
    found = sampled_losses(module.weight, module.bias, [hidden, hidden[1:]], [TARGETS, TARGETS[:-1]], [DRAWN, only])
    expected = [
        sampled_reference(module, hidden, TARGETS, DRAWN),
        sampled_reference(module, hidden[1:], TARGETS[:-1], only),
    ]
    assert {loss.dtype for loss in found} == {torch.float32}
    # The sum is near 70, where float32 has steps of 8e-6.
    assert_close(found, expected, 0, 1e-6)
    gradients = (gradients_of(sum(losses), hidden, module) for losses in (found, expected))
    assert_close(*gradients, 1e-5)


@pytest.mark.parametrize(("num_words", "num_samples"), [(23, 1), (23, 23), (1, 1), (400, 390), (3000, 700)])
def test_candidates_are_those_of_drawing_one_by_one_until_enough_are_distinct(num_words: int, num_samples: int) -> None:
    torch.manual_seed(1)
    candidates = draw_candidates(num_words, num_samples)
    torch.manual_seed(1)
    uniform = iter(torch.cat([torch.rand(2 * num_samples + 64, dtype=torch.float64) for _ in range(60)]).tolist())
    expected: dict[int, None] = {}
    num_draws = 0
    while len(expected) < num_samples:
        expected[int(math.exp(next(uniform) * math.log(num_words + 1))) - 1] = None
        num_draws += 1
    assert candidates.words.tolist() == [*expected]
    assert candidates.num_draws.item() == num_draws
    assert 0 <= min(expected) <= max(expected) < num_words


def test_words_are_drawn_anew_for_each_batch_and_direction_from_the_generator() -> None:
    model = tiny_word_lm(softmax="sampled", lm_dropout=0.0).train()
    ids = torch.arange(1, 7).view(2, 3)
    torch.manual_seed(3)
    losses = [model(ids, labels=ids).loss.item() for _ in range(3)]
    torch.manual_seed(3)
    drawn = [[draw_candidates(len(WORDS), model.config.num_softmax_samples) for _ in range(2)] for _ in range(3)]
    assert losses == [model(ids, labels=ids, candidates=pair).loss.item() for pair in drawn]
    assert len(set(losses)) == 3


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_gradients_of_both_sides_reach_a_shared_word_embedding(kind: str) -> None:
    shared, apart = (
        tiny_word_lm(softmax=kind, lm_dropout=0.0, share_embedding_softmax=is_shared).train()
        for is_shared in (True, False)
    )
    table = shared.get_input_embeddings().weight
    apart.load_state_dict(shared.state_dict() | {"softmax.weight": table[1:]})
    drawn = DRAWN, Candidates(torch.tensor([2, 0, 16, 8, 1]), torch.tensor(9.0))
    for model in (shared, apart):
        model(**inputs_of(model), candidates=drawn).loss.backward()
    both, single = ({name: weight.grad for name, weight in model.named_parameters()} for model in (shared, apart))
    name = "elmo.token_encoder.embedding.weight"
    expected = single[name].clone()
    assert expected.abs().sum() > 0
    expected[1:] += single.pop("softmax.weight")
    assert both[name][0].abs().max() == 0
    assert_close(both, single | {name: expected}, 1e-6)


def test_initial_softmax_is_bilm_tfs() -> None:
    fields = {"projection_size": 64, "cell_size": 9, "num_softmax_words": 900}
    softmax = ElmoForPreTraining(ElmoConfig(**fields)).softmax
    assert softmax.weight.std().item() == pytest.approx(64**-0.5, rel=0.02)
    assert softmax.weight.mean().item() == pytest.approx(0, abs=0.003)
    assert softmax.bias.tolist() == [0] * 900

"""The softmax over words: full and sampled, each against a slow obvious reference."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from elmo_hf import ElmoConfig
from elmo_hf.language_model import softmax
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.sampled_softmax import Candidates, draw_candidates, sampled_losses
from elmo_hf.language_model.softmax import WordSoftmax

P, V, N, S = 7, 23, 13, 5
TARGETS = torch.tensor([0, 22, 3, 3, 7, 1, 19, 0, 4, 11, 2, 3, 16])
DRAWN = Candidates(torch.tensor([3, 0, 14, 1, 9]), torch.tensor(11.0))
WORD_INPUT = {"token_encoder": "word_embedding", "vocab_size": V + 1, "projection_size": P, "cell_size": 9}
WORD_INPUT |= {"num_softmax_samples": S}
Gradients = tuple[Tensor, Tensor, Tensor]


def word_softmax(dtype: torch.dtype = torch.float32, **fields: Any) -> WordSoftmax:
    """A softmax whose logits are a few units apart."""
    fields = {"projection_size": P, "num_softmax_words": V} | fields
    module = WordSoftmax(ElmoConfig(**fields))
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module.to(dtype)


def hidden_vectors(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(N, P, dtype=dtype, requires_grad=True)


def gradients_of(loss: Tensor, hidden: Tensor, module: WordSoftmax) -> Gradients:
    assert module.weight is not None
    return torch.autograd.grad(loss, [hidden, module.weight, module.bias])


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0, check_dtype=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("logits", "least_rows"), [(1, 1), (3 * V, 1), (1, 5), (2**21, 128)])
def test_full_losses_and_gradients_are_those_of_all_logits_at_once(
    dtype: torch.dtype, logits: int, least_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax, "BLOCK_LOGITS", logits)
    monkeypatch.setattr(softmax, "LEAST_BLOCK_SIZE", least_rows)
    module, hidden = word_softmax(dtype), hidden_vectors(dtype)
    loss = module(hidden, TARGETS)
    expected = cross_entropy(linear(hidden, module.weight, module.bias), TARGETS, reduction="sum")
    assert loss.dtype == dtype
    assert_close(loss, expected, 2e-5)
    # The factor is that of a mean over the predictions and of bilm-tf's steps.
    factor = 20 / N
    gradients = gradients_of(factor * expected, hidden, module)
    actual = gradients_of(factor * loss, hidden, module)
    assert {gradient.dtype for gradient in actual} == {dtype}
    assert_close(actual, gradients, 1e-5)
    # A saved folder leaves the gradient to autograd.
    in_folder = -module.log_probs(hidden, TARGETS).sum()
    assert_close(in_folder, expected, 2e-5)
    assert_close(gradients_of(factor * in_folder, hidden, module), gradients, 1e-5)


@pytest.mark.parametrize("frozen", ["hidden", "weight", "bias"])
def test_what_is_frozen_gets_no_gradient_and_the_rest_its_own(frozen: str) -> None:
    module, hidden = word_softmax(), hidden_vectors()
    tensors = {"hidden": hidden, "weight": module.weight, "bias": module.bias}
    expected = gradients_of(module(hidden, TARGETS), hidden, module)
    tensors[frozen].requires_grad_(False)
    module(hidden, TARGETS).backward()
    for (name, tensor), gradient in zip(tensors.items(), expected, strict=True):
        if name == frozen:
            assert tensor.grad is None
        else:
            assert torch.equal(tensor.grad, gradient)


@pytest.mark.parametrize("rows", [4, 128])
def test_full_softmax_under_autocast_is_that_of_its_precision(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "BLOCK_LOGITS", 1)
    monkeypatch.setattr(softmax, "LEAST_BLOCK_SIZE", rows)
    module, hidden = word_softmax(), hidden_vectors()
    expected = module(hidden, TARGETS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = module(hidden, TARGETS)
    assert loss.dtype == torch.float32
    assert_close(loss, expected, 0.2)
    actual = gradients_of(loss, hidden, module)
    assert {gradient.dtype for gradient in actual} == {torch.float32}
    assert_close(actual, gradients_of(expected, hidden, module), 5e-2)


def test_full_softmax_in_half_precision_has_gradients_of_its_precision() -> None:
    module, hidden = word_softmax(torch.bfloat16), hidden_vectors(torch.bfloat16)
    wide = word_softmax()
    wide.load_state_dict(module.state_dict())
    wide_hidden = hidden.detach().float().requires_grad_()
    actual = gradients_of(module(hidden, TARGETS), hidden, module)
    assert {gradient.dtype for gradient in actual} == {torch.bfloat16}
    assert_close(actual, gradients_of(wide(wide_hidden, TARGETS), wide_hidden, wide), 5e-2)


def test_log_probabilities_are_those_of_the_logits_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "BLOCK_LOGITS", 5 * V)
    monkeypatch.setattr(softmax, "LEAST_BLOCK_SIZE", 1)
    module, hidden = word_softmax(), hidden_vectors()
    expected = module.logits(hidden).log_softmax(dim=-1).gather(1, TARGETS.unsqueeze(1)).squeeze(1)
    rows: list[int] = []
    original = module.logits
    monkeypatch.setattr(module, "logits", lambda block, shared: rows.append(len(block)) or original(block, shared))
    assert_close(module.log_probs(hidden, TARGETS), expected, 1e-6)
    assert rows == [5, 5, 3]


def test_full_losses_that_need_no_gradient_make_none(monkeypatch: pytest.MonkeyPatch) -> None:
    module, hidden = word_softmax(), hidden_vectors()
    expected = module(hidden, TARGETS)
    monkeypatch.setattr(WordSoftmax, "cross_entropy", staticmethod(lambda *_: pytest.fail("with a gradient")))
    with torch.no_grad():
        assert_close(module(hidden, TARGETS), expected, 1e-5)


def test_without_predictions_losses_are_zero_and_so_are_gradients() -> None:
    module, hidden, targets = word_softmax(), hidden_vectors(), TARGETS[:0]
    assert module.log_probs(hidden[:0], targets).shape == (0,)
    for loss in (module(hidden[:0], targets), sampled(module, hidden[:0], targets, DRAWN)):
        assert loss.item() == 0
        assert all(gradient.abs().max() == 0 for gradient in gradients_of(loss, hidden, module))


def test_full_softmax_refuses_to_be_differentiated_twice() -> None:
    module, hidden = word_softmax(), hidden_vectors()
    (gradient,) = torch.autograd.grad(module(hidden, TARGETS).square(), hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice a function that was marked with @once_differentiable"):
        gradient.sum().backward()


def sampled(module: WordSoftmax, hidden: Tensor, targets: Tensor, candidates: Candidates) -> Tensor:
    """The sampled loss of one direction."""
    (loss,) = sampled_losses(module, [hidden], [targets], [candidates])
    return loss


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
    module, hidden = word_softmax(), hidden_vectors()
    assert len(set(TARGETS.tolist()) & set(DRAWN.words.tolist())) == 3
    loss = sampled(module, hidden, TARGETS, DRAWN)
    expected = sampled_reference(module, hidden, TARGETS, DRAWN)
    assert loss.dtype == torch.float32
    # The sum is near 70, where float32 has steps of 8e-6.
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0, check_dtype=False)
    assert_close(gradients_of(loss, hidden, module), gradients_of(expected, hidden, module), 1e-5)


def test_directions_have_their_own_sampled_losses() -> None:
    module, hidden, only = word_softmax(), hidden_vectors(), Candidates(torch.tensor([3, 1]), torch.tensor(4.0))
    found = sampled_losses(module, [hidden, hidden[1:]], [TARGETS, TARGETS[:-1]], [DRAWN, only])
    expected = [sampled(module, hidden, TARGETS, DRAWN), sampled(module, hidden[1:], TARGETS[:-1], only)]
    assert_close(torch.stack(found), torch.stack(expected), 1e-6)
    gradients = [gradients_of(sum(losses), hidden, module) for losses in (found, expected)]
    assert_close(*gradients, 1e-6)


def test_a_drawn_word_that_is_the_target_is_left_out_of_that_row_only() -> None:
    module, hidden = word_softmax(), hidden_vectors()
    only = Candidates(torch.tensor([3]), torch.tensor(4.0))
    losses = [sampled(module, hidden[row : row + 1], TARGETS[row : row + 1], only) for row in range(N)]
    assert [loss.item() == 0 for loss in losses] == (TARGETS == 3).tolist()


def test_sampled_losses_under_autocast_are_those_of_its_precision() -> None:
    module, hidden = word_softmax(), hidden_vectors()
    expected = sampled(module, hidden, TARGETS, DRAWN)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = sampled(module, hidden, TARGETS, DRAWN)
    assert loss.dtype == torch.float32
    assert_close(loss, expected, 0.2)
    assert_close(gradients_of(loss, hidden, module), gradients_of(expected, hidden, module), 5e-2)


def test_all_words_drawn_time_and_again_give_the_full_loss() -> None:
    module, hidden = word_softmax(), hidden_vectors()
    every_word = Candidates(torch.randperm(V), torch.tensor(1e5))
    loss, full = sampled(module, hidden, TARGETS, every_word), module(hidden, TARGETS)
    assert_close(loss, full, 1e-4)
    assert_close(gradients_of(loss, hidden, module), gradients_of(full, hidden, module), 1e-5)


def test_words_are_drawn_anew_for_each_batch_from_the_generator() -> None:
    model = ElmoForPreTraining(ElmoConfig(**WORD_INPUT, num_softmax_words=V, softmax="sampled", lm_dropout=0.0)).train()
    ids = torch.arange(1, 7).view(2, 3)

    def losses() -> list[float]:
        torch.manual_seed(3)
        return [model(ids, labels=ids).loss.item() for _ in range(3)]

    first = losses()
    assert len(set(first)) == 3
    assert losses() == first


@pytest.mark.parametrize(("num_words", "num_samples"), [(23, 1), (23, 5), (23, 23), (1, 1), (400, 390), (3000, 700)])
@pytest.mark.parametrize("seed", [0, 1])
def test_candidates_are_those_of_drawing_one_by_one_until_enough_are_distinct(
    num_words: int, num_samples: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = torch.rand(40_000, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    place = 0

    def rand(number: int, **kwargs: Any) -> Tensor:
        nonlocal place
        place += number
        return stream[place - number : place]

    monkeypatch.setattr(torch, "rand", rand)
    candidates = draw_candidates(num_words, num_samples)
    expected: list[int] = []
    num_draws = 0
    while len(expected) < num_samples:
        word = int(math.exp(stream[num_draws].item() * math.log(num_words + 1))) - 1
        num_draws += 1
        if word not in expected:
            expected.append(word)
    assert candidates.words.tolist() == expected
    assert candidates.num_draws.item() == num_draws
    assert 0 <= min(expected) <= max(expected) < num_words


def test_more_samples_than_words_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot draw 24 distinct words from a vocabulary of 23"):
        draw_candidates(23, 24)


def test_first_draws_are_log_uniform() -> None:
    """Frequencies within 5 standard deviations of P(k), for each of 9 words: by chance, wrong once in 190,000 seeds."""
    number, num_words = 4000, 9
    firsts = torch.stack([draw_candidates(num_words, 2).words[0] for _ in range(number)])
    frequencies = firsts.bincount(minlength=num_words).double() / number
    k = torch.arange(num_words, dtype=torch.float64)
    probabilities = ((k + 2) / (k + 1)).log() / math.log(num_words + 1)
    assert_close(probabilities.sum(), torch.tensor(1.0), 1e-12)
    deviations = (probabilities * (1 - probabilities) / number).sqrt()
    assert ((frequencies - probabilities).abs() / deviations).max() < 5


def normaliser(logits: Tensor, candidates: Candidates) -> Tensor:
    """The estimate of the sum of exp(u) over all words in a sampled loss."""
    words = candidates.words
    return (logits[words] - candidates.log_expected_counts(words, len(logits))).exp().sum()


def ratio_to_full(logits: Tensor, estimates: Tensor) -> tuple[float, float]:
    """Mean of the estimates over the full softmax's sum, and the standard error of that mean."""
    ratios = estimates / logits.exp().sum()
    return ratios.mean().item(), ratios.std().item() / len(ratios) ** 0.5


def test_sampled_normaliser_is_unbiased_for_a_given_number_of_draws() -> None:
    """Exactly so, word by word (Horvitz-Thompson): the mean is within 4 standard errors, all below 1 %, of the sum."""
    num_words, num_draws = 40, 12
    logits = torch.randn(num_words)
    probabilities = torch.log1p(1 / (torch.arange(num_words) + 1.0)) / math.log(num_words + 1)
    draws = torch.multinomial(probabilities, num_draws * 8000, replacement=True).view(8000, num_draws)
    every_word = torch.arange(num_words)
    log_counts = Candidates(every_word, torch.tensor(float(num_draws))).log_expected_counts(every_word, num_words)
    is_drawn = torch.zeros(8000, num_words).scatter_(1, draws, 1)
    mean, error = ratio_to_full(logits, is_drawn @ (logits - log_counts).exp())
    assert error < 0.01
    assert abs(mean - 1) < 4 * error


@pytest.mark.parametrize(("num_words", "num_samples", "bound"), [(2000, 300, 0.01), (40, 12, 0.08)])
def test_sampled_normaliser_of_drawn_candidates_is_unbiased_but_for_the_rule_when_to_stop(
    num_words: int, num_samples: int, bound: float
) -> None:
    """TensorFlow stops at the draw that makes S distinct, which is never a repetition: a bias that falls with S.

    The mean of 4,000 estimates is within 1 % of the full softmax's sum for 300 of 2,000 words, within 8 % for 12 of 40.
    """
    logits = torch.randn(num_words)
    estimates = [normaliser(logits, draw_candidates(num_words, num_samples)) for _ in range(4000)]
    mean, error = ratio_to_full(logits, torch.stack(estimates))
    assert error < bound / 4
    assert abs(mean - 1) < bound


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_gradients_of_both_sides_reach_a_shared_word_embedding(kind: str) -> None:
    fields = WORD_INPUT | {"softmax": kind, "lm_dropout": 0.0}
    shared = ElmoForPreTraining(ElmoConfig(share_embedding_softmax=True, **fields)).train()
    apart = ElmoForPreTraining(ElmoConfig(num_softmax_words=V, **fields)).train()
    assert shared.config.num_softmax_words == V
    assert {name for name, _ in shared.softmax.named_parameters()} == {"bias"}
    table = shared.get_input_embeddings().weight
    apart.load_state_dict(shared.state_dict() | {"softmax.weight": table[1:]})
    ids = torch.randint(1, V + 1, (3, 6))
    gradients = []
    for model in (shared, apart):
        output = model(
            ids,
            backward_input_ids=ids.flip(0),
            forward_targets=ids.flip(1) - 1,
            backward_targets=(ids - 1).roll(1),
            candidates=(DRAWN, Candidates(torch.tensor([2, 0, 21, 8, 1]), torch.tensor(9.0))),
        )
        output.loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    both, single = gradients
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

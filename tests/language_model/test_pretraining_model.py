"""`ElmoForPreTraining` as users call it: sentences, the words a prediction depends on, dropout, softmaxes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_lm import MAKERS, SENTENCES, WORDS, assert_close, inputs_of, tiny_lm, tiny_word_lm
from torch import Tensor, nn

from elmo_hf import ElmoModel
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.scan.reading_order import BatchLayout

V, P = len(WORDS), 7


@pytest.mark.parametrize("layer_mix", ["scalar", "linear"])
@pytest.mark.parametrize("make", MAKERS)
def test_everything_that_learns_gets_a_gradient_and_the_mixes_do_not_learn(
    make: Callable[..., ElmoForPreTraining], layer_mix: str, tmp_path: Path
) -> None:
    made = make(layer_mix=layer_mix)
    made.save_pretrained(tmp_path / "model")
    for model in (made, ElmoForPreTraining.from_pretrained(tmp_path / "model")):
        model(**inputs_of(model, tmp_path, SENTENCES)).loss.backward()
        assert all((parameter.grad is not None) == parameter.requires_grad for parameter in model.parameters())
        frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
        assert frozen == {f"elmo.{layer_mix}_mixes.{name}" for name, _ in model.elmo.mixes.named_parameters()}
    mixes = ElmoModel.from_pretrained(tmp_path / "model").mixes
    assert all(parameter.requires_grad for parameter in mixes.parameters())


def top_of(model: ElmoForPreTraining, inputs: Any) -> Tensor:
    """The highest layer `(B, T, 2P)`."""
    given = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    return model.elmo(**given, output_hidden_states=True).hidden_states[-1]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_every_word_is_predicted_from_the_state_beside_it_and_losses_are_means(
    make: Callable[..., ElmoForPreTraining], side: str, tmp_path: Path
) -> None:
    model = make()
    inputs = inputs_of(model, tmp_path, SENTENCES, side)
    inputs["labels"][3, 4] = inputs["labels"][3, 5] = -100
    output = model(**inputs, output_log_probs=True)
    hidden, table = top_of(model, inputs), (model.softmax.weight, model.softmax.bias)
    expected = torch.zeros(2, *inputs["labels"].shape)
    losses: tuple[list[Tensor], list[Tensor]] = ([], [])
    for row, words in enumerate(SENTENCES):
        first = 0 if side == "right" else inputs["labels"].shape[1] - len(words) - 2
        for place in range(first, first + len(words) + 2):
            # The forward direction never predicts `<S>`, the backward direction never `</S>`.
            predicted = [(0, place + 1, slice(0, P)), (1, place - 1, slice(P, None))]
            for direction, target, half in predicted:
                if first <= target < first + len(words) + 2 and inputs["labels"][row, target] != -100:
                    logits = nn.functional.linear(hidden[row, place, half], *table)
                    log_prob = logits.log_softmax(dim=-1)[inputs["labels"][row, target]]
                    expected[direction, row, target] = log_prob
                    losses[direction].append(-log_prob)
    assert len(losses[0]) == len(losses[1]) == sum(len(words) + 1 for words in SENTENCES) - 2
    assert_close(torch.stack([output.forward_log_probs, output.backward_log_probs]), expected)
    assert_close(output.forward_loss, torch.stack(losses[0]).mean())
    assert_close(output.backward_loss, torch.stack(losses[1]).mean())
    assert_close(output.loss, (output.forward_loss + output.backward_loss) / 2)
    assert (output.forward_loss - output.backward_loss).abs() > 0.01


def test_every_way_of_calling_gives_the_same_numbers(tmp_path: Path) -> None:
    model = tiny_lm()
    inputs = inputs_of(model, tmp_path, SENTENCES)
    output = model(**inputs)
    parameters = list(model.elmo.bilm.parameters())
    gradients = torch.autograd.grad(output.loss, parameters)
    scored = model(**inputs, output_log_probs=True, output_logits=True)
    assert_close([scored[name] for name in output], list(output.values()), 1e-6)
    assert_close(torch.autograd.grad(scored.loss, parameters, retain_graph=True), gradients)
    assert_close(model(**inputs, return_dict=False), output.to_tuple())
    # Logits are for the word after a position, and for the word before it.
    labels, is_word = inputs["labels"].unsqueeze(-1), inputs["attention_mask"].bool()[:, 1:]
    forward = scored.forward_logits[:, :-1].log_softmax(dim=-1).gather(2, labels[:, 1:]).squeeze(-1)
    backward = scored.backward_logits[:, 1:].log_softmax(dim=-1).gather(2, labels[:, :-1]).squeeze(-1)
    assert_close(scored.forward_log_probs[:, 1:], forward * is_word)
    assert_close(scored.backward_log_probs[:, :-1], backward * is_word)
    del inputs["labels"]
    without = model(**inputs, output_log_probs=True)
    assert list(without) == ["state_hidden", "state_cell"]
    assert_close(without.state, model.elmo(**inputs).state)


@pytest.mark.parametrize("lengths", [[], [0]])
def test_nothing_to_predict_is_a_loss_of_zero(lengths: list[int]) -> None:
    model = tiny_lm()
    ids = torch.zeros(len(lengths), 3, 11, dtype=torch.long)
    output = model(ids, labels=torch.full(ids.shape[:2], 5), output_log_probs=True)
    assert (output.loss.item(), output.forward_log_probs.abs().sum().item()) == (0, 0)


def test_dropout_applies_to_each_layers_input_and_the_output_and_skips_carry_dropped_inputs(tmp_path: Path) -> None:
    model = tiny_lm(lm_dropout=0.35)
    inputs = inputs_of(model, tmp_path, SENTENCES)
    model.config.lm_dropout = 0.0
    expected = model(**inputs).loss
    model.config.lm_dropout = 0.35
    assert_close(model(**inputs).loss, expected, 0)  # none in evaluation
    found = []
    for checkpoints in (False, True):
        if checkpoints:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        torch.manual_seed(5)
        loss = model.train()(**inputs).loss
        parameters = [*model.elmo.token_encoder.parameters(), *model.elmo.bilm.parameters()]
        found.append((loss, torch.autograd.grad(loss, parameters)))
    assert_close(found[1], found[0], 1e-6)

    def drop(vectors: Tensor) -> Tensor:
        return nn.functional.dropout(vectors, 0.35)

    torch.manual_seed(5)
    vectors, mask = model.elmo.embed_words(inputs["input_ids"], inputs["attention_mask"])
    layout, hidden, cell = BatchLayout(mask), torch.zeros(len(mask), 2 * P), torch.zeros(len(mask), 18)
    first, second = model.elmo.bilm.layers
    second.has_skip_connection = False
    dropped = drop(first(drop(torch.cat([vectors, vectors], dim=-1)), layout, hidden, cell)[0])
    top = drop(second(dropped, layout, hidden, cell)[0] + dropped)
    losses, is_predicted = [], mask[:, 1:]
    for before, after in ((top[:, :-1, :P], inputs["labels"][:, 1:]), (top[:, 1:, P:], inputs["labels"][:, :-1])):
        logits = nn.functional.linear(before[is_predicted], model.softmax.weight, model.softmax.bias)
        losses.append(nn.functional.cross_entropy(logits, after[is_predicted]))
    assert_close(found[0][0], (losses[0] + losses[1]) / 2)


def test_a_sampled_loss_has_its_own_name_and_does_not_occur_in_evaluation(tmp_path: Path) -> None:
    model = tiny_lm(softmax="sampled", lm_dropout=0.0)
    inputs = inputs_of(model, tmp_path, SENTENCES)
    full = model(**inputs)
    assert list(full) == ["loss", "forward_loss", "backward_loss", "state_hidden", "state_cell"]
    sampled = model.train()(**inputs, output_log_probs=True)
    names = ["loss", "sampled_forward_loss", "sampled_backward_loss", "state_hidden", "state_cell"]
    assert list(sampled) == [*names, "forward_log_probs", "backward_log_probs"]
    # Log-probabilities come from the exact softmax.
    assert_close(sampled.forward_log_probs.sum() / (sampled.forward_log_probs != 0).sum(), -full.forward_loss)


def test_a_shared_softmax_follows_an_embedding_that_was_replaced(tmp_path: Path) -> None:
    model = tiny_word_lm(share_embedding_softmax=True, num_softmax_words=None)
    assert model.config.num_softmax_words == V
    model.set_input_embeddings(nn.Embedding(V + 1, P, padding_idx=0))
    inputs = inputs_of(model, tmp_path, SENTENCES[:1])
    table = model.elmo.token_encoder.embedding.weight[1:]
    expected = top_of(model, inputs)[..., :P] @ table.t() + model.softmax.bias
    assert_close(model(**inputs, output_logits=True).forward_logits, expected)

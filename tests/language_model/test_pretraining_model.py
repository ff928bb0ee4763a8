"""`ElmoForPreTraining` as users call it: sentences, the words a prediction depends on, dropout, softmaxes, errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from state_dict_keys import STATE_DICT_KEYS
from tiny_lm import MAKERS, SENTENCES, WORDS, assert_close, inputs_of, stream_of, tiny_lm, tiny_word_lm
from torch import Tensor, nn

from elmo_hf import ElmoModel
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.sampled_softmax import Candidates, sampled_losses
from elmo_hf.scan.reading_order import BatchLayout

V, P, L = len(WORDS), 7, 2


def test_state_dict_keys_are_those_of_the_bilm_and_the_softmax() -> None:
    encoder = {f"elmo.{name}": shape for name, shape in STATE_DICT_KEYS.items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tiny_lm().state_dict().items()}
    assert shapes == encoder | {"softmax.weight": (V, P), "softmax.bias": (V,)}
    shared = tiny_word_lm(share_embedding_softmax=True).state_dict()
    assert {name for name in shared if name.startswith("softmax.")} == {"softmax.bias"}


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


def encoder_inputs(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: inputs[name] for name in ("input_ids", "attention_mask")}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_every_word_is_predicted_from_the_state_beside_it_and_losses_are_means(
    make: Callable[..., ElmoForPreTraining], side: str, tmp_path: Path
) -> None:
    model = make()
    inputs = inputs_of(model, tmp_path, SENTENCES, side)
    output = model(**inputs, output_log_probs=True)
    hidden = model.elmo(**encoder_inputs(inputs), output_hidden_states=True).hidden_states[-1]
    expected = torch.zeros(2, *inputs["labels"].shape)
    losses: tuple[list[Tensor], list[Tensor]] = ([], [])
    for row, words in enumerate(SENTENCES):
        first = 0 if side == "right" else inputs["labels"].shape[1] - len(words) - 2
        for place in range(first, first + len(words) + 2):
            # The forward direction never predicts `<S>`, the backward direction never `</S>`.
            predicted = [(0, place + 1, slice(0, P)), (1, place - 1, slice(P, None))]
            for direction, target, half in predicted:
                if first <= target < first + len(words) + 2:
                    logits = model.softmax.logits(hidden[row, place, half], model._shared_weight)
                    log_prob = logits.log_softmax(dim=-1)[inputs["labels"][row, target]]
                    expected[direction, row, target] = log_prob
                    losses[direction].append(-log_prob)
    assert len(losses[0]) == len(losses[1]) == sum(len(words) + 1 for words in SENTENCES)
    assert_close(torch.stack([output.forward_log_probs, output.backward_log_probs]), expected)
    assert_close(output.forward_loss, torch.stack(losses[0]).mean())
    assert_close(output.backward_loss, torch.stack(losses[1]).mean())
    assert_close(output.loss, (output.forward_loss + output.backward_loss) / 2)
    assert (output.forward_loss - output.backward_loss).abs() > 0.01


def test_losses_are_the_same_with_and_without_log_probabilities(tmp_path: Path) -> None:
    model = tiny_lm()
    inputs = inputs_of(model, tmp_path, SENTENCES)
    expected = model(**inputs)
    gradients = torch.autograd.grad(expected.loss, list(model.elmo.bilm.parameters()))
    output = model(**inputs, output_log_probs=True)
    for name in ("loss", "forward_loss", "backward_loss"):
        assert_close(output[name], expected[name], 1e-6)
    assert_close(torch.autograd.grad(output.loss, list(model.elmo.bilm.parameters())), gradients)


def test_a_label_of_minus_100_is_predicted_by_neither_direction(tmp_path: Path) -> None:
    model = tiny_lm()
    inputs = inputs_of(model, tmp_path, SENTENCES)
    whole = model(**inputs, output_log_probs=True)
    inputs["labels"][0, 2] = inputs["labels"][3, 8] = -100
    output = model(**inputs, output_log_probs=True)
    for name in ("forward", "backward"):
        log_probs = whole[f"{name}_log_probs"].clone()
        log_probs[0, 2] = log_probs[3, 8] = 0
        assert_close(output[f"{name}_log_probs"], log_probs)
        num_predictions = sum(len(words) + 1 for words in SENTENCES) - 2
        assert_close(output[f"{name}_loss"], -log_probs.sum() / num_predictions)


@pytest.mark.parametrize("lengths", [[], [0]])
def test_nothing_to_predict_is_a_loss_of_zero(lengths: list[int]) -> None:
    model = tiny_lm()
    ids = torch.zeros(len(lengths), 3, 11, dtype=torch.long)
    output = model(ids, labels=torch.full(ids.shape[:2], 5), output_log_probs=True)
    assert (output.loss.item(), output.forward_log_probs.abs().sum().item()) == (0, 0)


def test_without_labels_there_are_no_losses(tmp_path: Path) -> None:
    model = tiny_lm()
    inputs = inputs_of(model, tmp_path, SENTENCES)
    del inputs["labels"]
    output = model(**inputs, output_log_probs=True)
    assert list(output) == ["state_hidden", "state_cell"]
    expected = model.elmo(**inputs)
    assert_close(output.state, expected.state)


def test_a_tuple_comes_back_on_request(tmp_path: Path) -> None:
    model = tiny_lm()
    inputs = inputs_of(model, tmp_path, SENTENCES)
    output = model(**inputs)
    as_tuple = model(**inputs, return_dict=False)
    assert_close(
        as_tuple, (output.loss, output.forward_loss, output.backward_loss, output.state_hidden, output.state_cell)
    )


def test_logits_are_for_the_word_after_and_the_word_before(tmp_path: Path) -> None:
    model = tiny_lm()
    inputs = inputs_of(model, tmp_path, SENTENCES)
    output = model(**inputs, output_log_probs=True, output_logits=True)
    labels = inputs["labels"].unsqueeze(-1)
    is_word = inputs["attention_mask"].bool()
    forward = output.forward_logits[:, :-1].log_softmax(dim=-1).gather(2, labels[:, 1:]).squeeze(-1)
    backward = output.backward_logits[:, 1:].log_softmax(dim=-1).gather(2, labels[:, :-1]).squeeze(-1)
    assert_close(output.forward_log_probs[:, 1:], forward * is_word[:, 1:])
    assert_close(output.backward_log_probs[:, :-1], backward * is_word[:, 1:])


@pytest.mark.parametrize("way", ["sentences", "streams"])
def test_no_prediction_depends_on_its_word_or_what_is_read_after_it(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, length = tiny_lm(cell_clip=None, projection_clip=None), 10
    is_stream = way == "streams"
    inputs = (stream_of if is_stream else inputs_of)(model, tmp_path, [[SENTENCES[3]] if is_stream else SENTENCES[3]])
    length = inputs["input_ids"].shape[1]
    vectors = torch.randn(1 + is_stream, length, P, requires_grad=True)
    mask = torch.ones(vectors.shape[:2], dtype=torch.bool)
    monkeypatch.setattr(model.elmo, "embed_words", lambda *arguments: (vectors, mask))
    output = model(**inputs, output_log_probs=True)
    for name in ("forward", "backward"):
        for place in range(length):
            log_prob = output[f"{name}_log_probs"][0, place]
            if log_prob == 0:
                assert (is_stream, name, place) in [(False, "forward", 0), (False, "backward", length - 1)]
                continue
            (gradient,) = torch.autograd.grad(log_prob, vectors, retain_graph=True)
            depends = gradient.abs().sum(dim=-1) > 0
            places = torch.arange(length)
            if is_stream:
                # Each stream has its own word vectors.
                expected = torch.zeros(2, length, dtype=torch.bool)
                expected[int(name == "backward")] = places >= place if name == "backward" else places <= place
            else:
                expected = (places < place if name == "forward" else places > place).unsqueeze(0)
            assert torch.equal(depends, expected), (name, place)


def test_each_direction_trains_its_own_lstms_and_both_train_what_they_share(tmp_path: Path) -> None:
    model = tiny_lm()
    output = model(**inputs_of(model, tmp_path, SENTENCES))
    for name, other in (("forward", "backward"), ("backward", "forward")):
        model.zero_grad()
        output[f"{name}_loss"].backward(retain_graph=True)
        trained = {key for key, parameter in model.named_parameters() if (parameter.grad is not None)}
        trained = {key for key in trained if dict(model.named_parameters())[key].grad.abs().max() > 0}
        everything = {key for key, _ in model.named_parameters() if "scalar_mixes" not in key}
        assert trained == {key for key in everything if f"{other}_lstm" not in key}


class Dropouts:
    """Replaces `nn.functional.dropout`: multiplies by recorded masks and records the shapes and rates of its calls."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.rates: list[float] = []
        self.masks: list[Tensor] = []

    def __call__(self, inputs: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return inputs
        self.shapes.append(tuple(inputs.shape))
        self.rates.append(p)
        self.masks.append(torch.rand_like(inputs))
        return inputs * self.masks[-1]


def test_dropout_applies_to_each_layers_input_and_the_output_and_skips_carry_dropped_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_lm(lm_dropout=0.35).train()
    inputs = inputs_of(model, tmp_path, SENTENCES)
    dropouts = Dropouts()
    monkeypatch.setattr(nn.functional, "dropout", dropouts)
    loss = model(**inputs).loss
    batch_size, length = inputs["labels"].shape
    assert dropouts.shapes == [(batch_size, length, 2 * P)] * (L + 1)
    assert dropouts.rates == [0.35] * (L + 1)
    vectors, mask = model.elmo.embed_words(inputs["input_ids"], inputs["attention_mask"])
    layout, hidden, cell = BatchLayout(mask), torch.zeros(batch_size, 2 * P), torch.zeros(batch_size, 18)
    first, second = model.elmo.bilm.layers
    second.has_skip_connection = False
    dropped = torch.cat([vectors, vectors], dim=-1) * dropouts.masks[0]
    dropped = first(dropped, layout, hidden, cell)[0] * dropouts.masks[1]
    top = (second(dropped, layout, hidden, cell)[0] + dropped) * dropouts.masks[2]
    losses = []
    for before, after in ((top[:, :-1, :P], inputs["labels"][:, 1:]), (top[:, 1:, P:], inputs["labels"][:, :-1])):
        is_predicted = mask[:, 1:]
        losses.append(nn.functional.cross_entropy(model.softmax.logits(before[is_predicted]), after[is_predicted]))
    assert_close(loss, (losses[0] + losses[1]) / 2)


def test_dropout_masks_are_fresh_for_each_word_and_direction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_lm(lm_dropout=0.5).train()
    stream = stream_of(model, tmp_path, [[["ferry"] * 400]])
    seen: list[Tensor] = []
    original = nn.functional.dropout

    def dropout(*args: Any, **kwargs: Any) -> Tensor:
        seen.append(original(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(nn.functional, "dropout", dropout)
    with torch.no_grad():
        model(**stream)
    is_dropped = (seen[0] == 0)[0, 1:-1]
    assert is_dropped.float().mean().item() == pytest.approx(0.5, abs=0.05)
    # Independent masks of 7 values agree once in 128.
    forward, backward = is_dropped[:, :P], is_dropped[:, P:]
    for first, second in ((forward, backward), (forward[1:], forward[:-1]), (backward[1:], backward[:-1])):
        assert (first == second).all(dim=-1).float().mean() < 0.05


def test_there_is_no_dropout_in_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_lm(lm_dropout=0.5)
    dropouts = Dropouts()
    monkeypatch.setattr(nn.functional, "dropout", dropouts)
    model(**inputs_of(model, tmp_path, SENTENCES))
    assert dropouts.masks == []


def test_dropout_is_the_same_with_and_without_gradient_checkpointing(tmp_path: Path) -> None:
    model = tiny_lm(lm_dropout=0.5).train()
    inputs = inputs_of(model, tmp_path, SENTENCES)
    found = []
    for checkpoints in (False, True):
        if checkpoints:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        torch.manual_seed(5)
        output = model(**inputs)
        parameters = [*model.elmo.token_encoder.parameters(), *model.elmo.bilm.parameters()]
        found.append((output.loss, torch.autograd.grad(output.loss, parameters)))
    assert_close(found[1], found[0], 1e-6)


def test_a_sampled_loss_has_its_own_name_and_does_not_occur_in_evaluation(tmp_path: Path) -> None:
    model = tiny_lm(softmax="sampled", lm_dropout=0.0)
    inputs = inputs_of(model, tmp_path, SENTENCES)
    full = model(**inputs)
    assert list(full) == ["loss", "forward_loss", "backward_loss", "state_hidden", "state_cell"]
    drawn = (Candidates(torch.tensor([3, 0, 14]), torch.tensor(4.0)), Candidates(torch.tensor([1, 9]), torch.tensor(2)))
    model.train()
    sampled = model(**inputs, candidates=drawn, output_log_probs=True)
    names = [
        "loss",
        "sampled_forward_loss",
        "sampled_backward_loss",
        "state_hidden",
        "state_cell",
        "forward_log_probs",
        "backward_log_probs",
    ]
    assert list(sampled) == names
    hidden = model.elmo(**encoder_inputs(inputs), output_hidden_states=True).hidden_states[-1]
    is_word, labels = inputs["attention_mask"].bool(), inputs["labels"]
    for name, before, after, candidates in (
        ("sampled_forward_loss", hidden[:, :-1, :P], labels[:, 1:], drawn[0]),
        ("sampled_backward_loss", hidden[:, 1:, P:], labels[:, :-1], drawn[1]),
    ):
        vectors, targets = before[is_word[:, 1:]], after[is_word[:, 1:]]
        expected = sampled_losses(model.softmax, [vectors], [targets], [candidates])[0] / len(targets)
        assert_close(sampled[name], expected)
    assert_close(sampled.loss, (sampled.sampled_forward_loss + sampled.sampled_backward_loss) / 2)
    # Log-probabilities come from the exact softmax.
    assert_close(-sampled.forward_log_probs.sum() / is_word[:, 1:].sum(), full.forward_loss)


def test_each_direction_draws_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_lm(softmax="sampled").train()
    drawn: list[Tensor] = []
    original = Candidates.log_expected_counts

    def log_expected_counts(self: Candidates, *args: Any) -> Tensor:
        drawn.append(self.words)
        return original(self, *args)

    monkeypatch.setattr(Candidates, "log_expected_counts", log_expected_counts)
    model(**inputs_of(model, tmp_path, SENTENCES))
    assert [len(words) for words in drawn] == [8, 8]
    assert not torch.equal(*drawn)


def test_input_embeddings_are_the_encoders() -> None:
    model = tiny_lm()
    assert model.get_input_embeddings() is model.elmo.token_encoder.embedding
    table = nn.Embedding(300, 5, padding_idx=0)
    model.set_input_embeddings(table)
    assert model.elmo.token_encoder.embedding is table


def test_a_shared_softmax_follows_an_embedding_that_was_replaced(tmp_path: Path) -> None:
    model = tiny_word_lm(share_embedding_softmax=True)
    model.set_input_embeddings(nn.Embedding(V + 1, P, padding_idx=0))
    output = model(**inputs_of(model, tmp_path, SENTENCES[:1]), output_logits=True)
    inputs = encoder_inputs(inputs_of(model, tmp_path, SENTENCES[:1]))
    hidden = model.elmo(**inputs, output_hidden_states=True).hidden_states[-1]
    expected = hidden[..., :P] @ model.elmo.token_encoder.embedding.weight[1:].t() + model.softmax.bias
    assert_close(output.forward_logits, expected)


def test_the_encoder_of_a_language_model_embeds_as_an_elmo_of_its_weights(tmp_path: Path) -> None:
    model = tiny_lm()
    encoder = ElmoModel(model.config).eval()
    encoder.load_state_dict(model.elmo.state_dict())
    inputs = inputs_of(model, tmp_path, SENTENCES)
    del inputs["labels"]
    assert_close(model.elmo(**inputs).to_tuple(), encoder(**inputs).to_tuple(), 0)

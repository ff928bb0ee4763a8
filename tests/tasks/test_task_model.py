"""What all models for a task promise: freezing, padding, saving, training; their rows and their LSTM."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmo_hf import ElmoConfig, ElmoForSequenceClassification
from elmo_hf.model.heads_elmo import BiLSTM, TextRows
from elmo_hf.share.training_card import ElmoTrainer
from tests.helpers.launching import fork_two
from tests.helpers.task_models import LSTM, TASKS, logits_of, make_batch, make_task_model
from tests.helpers.task_training import each_task, make_trainer, train_on_two_texts
from tests.helpers.tiny_inputs import TINY, assert_outputs_close

# Two rows of six positions; 1 and 2 mark the words of the first and of the second text.
TEXTS = torch.tensor([[0, 1, 1, 0, 2, 0], [0, 0, 0, 1, 2, 2]])
VALUES = torch.arange(12).view(2, 6)
ENCODERS: dict[str, dict[str, Any]] = {"none": {}, "lstm": LSTM, "one direction": LSTM | {"bidirectional": False}}
each_encoder = pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)


def trainable(model: torch.nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


@each_task
@each_encoder
def test_padding_and_other_texts_and_saving_change_nothing(task: str, encoder: dict[str, Any], tmp_path: Path) -> None:
    model = make_task_model(task, **encoder)
    alone = [logits_of(model(**make_batch(task, rows=slice(row, row + 1)))) for row in range(3)]
    for side in ("right", "left"):
        batch = make_batch(task, side)
        together = logits_of(model(**batch))
        for row, is_word in enumerate(batch["attention_mask"].bool()):
            logits = together[row] if together.dim() == 2 else together[row, is_word]
            assert_outputs_close(logits, alone[row][0], 1e-5)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert not again.training
    assert_outputs_close(again(**batch, return_dict=False), model(**batch).to_tuple(), 0)


@pytest.mark.parametrize("task", ["classification", "crf"])
def test_word_vectors_replace_the_ids_of_rows_without_boundaries(task: str) -> None:
    model, batch = make_task_model(task, **LSTM), make_batch(task)
    batch["input_ids"] = batch["input_ids"].where(batch["input_ids"] < model.config.bos_token_id, 3)  # no boundaries
    expected = model(**batch)
    batch["inputs_embeds"] = model.elmo.embed_words(batch.pop("input_ids"), batch["attention_mask"])[0]
    assert_outputs_close(model(**batch).to_tuple(), expected.to_tuple(), 0)


@each_task
@each_encoder
def test_layers_of_a_frozen_bilm_have_no_gradient_and_may_be_given(task: str, encoder: dict[str, Any]) -> None:
    model, batch = make_task_model(task, **encoder), make_batch(task)
    evaluated = model(**batch, output_hidden_states=True).hidden_states
    results = []
    for given in ({}, {"bilm_layers": torch.stack(evaluated, dim=2)}):
        model.train().zero_grad()
        torch.manual_seed(7)  # dropout
        output = model(**batch, **given, output_hidden_states=True)
        assert_outputs_close(output.hidden_states, evaluated, 0)
        assert all(layer.grad_fn is None and not layer.requires_grad for layer in output.hidden_states)
        output.loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        assert gradients.keys() == trainable(model)
        results.append((output.loss, logits_of(output), gradients))
    assert_outputs_close(results[1], results[0])


@pytest.mark.parametrize(
    ("fields", "frozen"),
    [
        ({}, ["token_encoder.", "bilm.layers.0.", "bilm.layers.1."]),
        ({"freeze_bilm": False}, []),
        ({"freeze_bilm": ["token_encoder", "layer_1"]}, ["token_encoder.", "bilm.layers.0."]),
        ({"freeze_bilm": ["layer_2"], "scalar_mix_trainable": False}, ["bilm.layers.1.", "scalar_mixes."]),
    ],
    ids=str,
)
def test_parts_freeze_as_the_config_says_when_made_loaded_and_asked(
    fields: dict[str, Any], frozen: list[str], tmp_path: Path
) -> None:
    model = make_task_model("classification", scalar_mix_weights=[0.2, 0.3, 0.5], **fields)
    names = {name for name, _ in model.named_parameters()}

    def all_but(parts: list[str]) -> set[str]:
        return {name for name in names if not name.startswith(tuple(f"elmo.{part}" for part in parts) or "-")}

    assert trainable(model) == all_but(frozen)
    model.save_pretrained(tmp_path)
    assert trainable(ElmoForSequenceClassification.from_pretrained(tmp_path)) == all_but(frozen)
    model.config.freeze_bilm = False
    model.set_trainable_parts()
    again = ElmoForSequenceClassification.from_pretrained(tmp_path, freeze_bilm=False)
    unfrozen = all_but([part for part in frozen if "mixes" in part])
    assert trainable(model) == trainable(again) == unfrozen
    assert again.elmo.scalar_mixes[0].weights.tolist() == pytest.approx([0.2, 0.3, 0.5])


def test_a_part_that_learns_gets_the_gradient_that_it_gets_when_all_learn() -> None:
    batch, gradients = make_batch("labelling"), []
    for freeze_bilm in (False, ["token_encoder", "layer_1"]):
        model = make_task_model("labelling", freeze_bilm=freeze_bilm)
        model(**batch).loss.backward()
        gradients.append({name: p.grad for name, p in model.elmo.bilm.layers[1].named_parameters()})
    assert all(gradient.abs().max() > 0 for gradient in gradients[0].values())
    assert_outputs_close(gradients[1], gradients[0])


def test_texts_without_boundaries_and_without_words_are_texts() -> None:
    model, batch = make_task_model("classification"), make_batch("classification")
    inner = batch["input_ids"][:1, 1:7]
    pooled = model.elmo(inner).elmo_representations[0].mean(dim=1)
    assert_outputs_close(model(inner).logits, model.classifier(pooled), 1e-5)
    empty = model(batch["input_ids"][:1, [0, 7]])
    assert_outputs_close(empty.logits, model.classifier.bias.unsqueeze(0))


@each_task
def test_the_classifiers_dropout_acts_in_training_only(task: str) -> None:
    model, batch = make_task_model(task, classifier_dropout=0.5, representation_dropout=0.0), make_batch(task)
    evaluated, again = (model(**batch).loss for _ in range(2))
    trained, other = (model.train()(**batch).loss for _ in range(2))
    assert evaluated == again
    assert len({evaluated.item(), trained.item(), other.item()}) == 3


@each_task
def test_the_pull_to_equal_weights_is_added_in_training_only_and_for_mixes_that_learn(task: str) -> None:
    batch = make_batch(task)
    losses = {}
    for l2, learns in ((0.0, True), (0.25, True), (0.25, False)):
        model = make_task_model(task, scalar_mix_l2=l2, scalar_mix_trainable=learns, representation_dropout=0.0)
        for mix in model.elmo.scalar_mixes:
            mix.set_weights([0.1, 0.2, 0.7])
        losses[l2, learns] = (model.eval()(**batch).loss.item(), model.train()(**batch).loss.item())
        if task in ("labelling", "crf"):  # half of an accumulated batch
            half = model(**batch, num_items_in_batch=2 * (batch["labels"] != -100).sum()).loss.item()
            assert half == pytest.approx(losses[l2, learns][1] / 2)
    penalty = model.elmo.scalar_mixes[0].penalty().item()
    plain = losses[0.0, True]
    assert losses[0.25, True] == pytest.approx((plain[0], plain[1] + 0.25 * penalty))
    assert losses[0.25, False] == pytest.approx(plain)


def test_a_saved_model_claims_no_softmax(tmp_path: Path) -> None:
    softmax = {"vocab_size": 10, "num_softmax_words": 9, "share_embedding_softmax": True}
    sizes = {"projection_size": 4, "cell_size": 6, "num_labels": 3}
    config = ElmoConfig(token_encoder="word_embedding", **softmax, **sizes)
    ElmoForSequenceClassification(config).save_pretrained(tmp_path)
    saved = ElmoConfig.from_pretrained(tmp_path)
    assert (saved.num_softmax_words, saved.share_embedding_softmax) == (None, False)


def test_saving_does_not_change_the_configs_softmax(tmp_path: Path) -> None:
    words = {"token_encoder": "word_embedding", "vocab_size": 10}
    model = make_task_model("labelling", **words, num_softmax_words=9, share_embedding_softmax=True)
    model.save_pretrained(tmp_path)
    assert (model.config.num_softmax_words, model.config.share_embedding_softmax) == (9, True)


def test_each_text_gets_a_row_with_its_words_first_which_go_back_to_their_places() -> None:
    rows = TextRows([TEXTS == 1, TEXTS == 2])
    assert rows.mask.tolist() == [[True, True], [True, False], [True, False], [True, True]]
    taken = rows.take(VALUES).masked_fill(~rows.mask, -1)
    assert taken.tolist() == [[1, 2], [9, -1], [4, -1], [10, 11]]
    assert torch.equal(rows.take(torch.stack([VALUES, -VALUES], dim=-1))[..., 1], -rows.take(VALUES))
    assert rows.put_back(rows.take(VALUES)).tolist() == [[0, 1, 2, 0, 4, 0], [0, 0, 0, 9, 10, 11]]
    vectors = torch.randn(4, 2, 3)
    assert torch.equal(rows.put_back(vectors)[1, 5], vectors[3, 1])


def test_a_batch_without_words_keeps_a_column() -> None:
    rows = TextRows([torch.zeros(2, 3, dtype=torch.bool)])
    assert rows.mask.tolist() == [[False], [False]]
    assert rows.put_back(torch.ones(2, 1, 4)).tolist() == torch.zeros(2, 3, 4).tolist()


@each_task
@each_encoder
def test_a_batch_without_rows_has_outputs_without_rows(task: str, encoder: dict[str, Any]) -> None:
    model = make_task_model(task, **encoder).eval()
    batch = {name: tensor[:0] for name, tensor in make_batch(task).items()}
    output = model(**batch)
    expected = logits_of(model(**make_batch(task)))
    assert logits_of(output).shape == expected[:0].shape
    assert output.loss == 0


@each_task
@each_encoder
def test_torch_func_gives_each_text_its_loss_and_gradients(task: str, encoder: dict[str, Any]) -> None:
    """Under `vmap` no shape may depend on numbers, and nothing may be read from them."""
    model = make_task_model(task, **encoder).eval()
    batch = make_batch(task)
    learned = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}

    def loss_of(weights: dict[str, torch.Tensor], text: dict[str, torch.Tensor]) -> torch.Tensor:
        row = {name: tensor.unsqueeze(0) for name, tensor in text.items()}
        return torch.func.functional_call(model, weights, (), row).loss

    weights = {name: parameter.detach() for name, parameter in learned.items()}
    gradients, losses = torch.func.vmap(torch.func.grad_and_value(loss_of), in_dims=(None, 0))(weights, batch)
    torch.testing.assert_close(torch.func.vmap(loss_of, in_dims=(None, 0))(weights, batch), losses)
    for row in range(len(losses)):
        loss = model(**{name: tensor[row : row + 1] for name, tensor in batch.items()}).loss
        torch.testing.assert_close(losses[row], loss.detach())
        expected = torch.autograd.grad(loss, list(learned.values()), materialize_grads=True)
        # Sums of float32 in another order.
        torch.testing.assert_close([gradients[name][row] for name in learned], list(expected), rtol=1e-4, atol=1e-6)


def test_the_tasks_lstm_is_torchs_over_packed_texts() -> None:
    ours, theirs = BiLSTM(5, 3), nn.LSTM(5, 3, batch_first=True, bidirectional=True)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    for lstm, suffix in ((ours.forward_lstm, ""), (ours.backward_lstm, "_reverse")):
        lstm.load_state_dict({name: getattr(theirs, name + suffix) for name in names})
    lengths = torch.tensor([4, 1, 3])
    inputs, mask = torch.randn(3, 4, 5), torch.arange(4) < lengths.unsqueeze(1)
    packed, _ = theirs(pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    assert_outputs_close(ours(inputs, mask), expected)


def test_under_autocast_the_tasks_lstm_is_that_of_bfloat16_on_every_processor() -> None:
    lstm, inputs = BiLSTM(5, 3), torch.randn(3, 4, 5)
    mask = torch.ones(3, 4, dtype=torch.bool)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = lstm(inputs, mask)
    assert_outputs_close(found, lstm.bfloat16()(inputs.bfloat16(), mask), 0)


NAMES = ["layer_0", "layer_1", "layer_2", "scale"]


@pytest.mark.parametrize(("task", "options"), [*((task, {}) for task in TASKS), ("crf", {"bf16": True})], ids=str)
def test_the_stock_trainer_fits_every_task(task: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = make_task_model(task, representation_dropout=0.0, **LSTM)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    # Every step sees all three texts, so that the loss falls in every one, to less than a tenth of what is asked for.
    settings = {"max_steps": 30, "learning_rate": 0.1, "per_device_train_batch_size": 3, "logging_strategy": "no"}
    trainer = make_trainer(model, task, tmp_path, **settings, **options)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.5 * before
    assert all(torch.equal(parameter, frozen[name]) for name, parameter in model.named_parameters() if name in frozen)
    assert model.elmo.scalar_mixes[0].weights.tolist() != pytest.approx([1 / 3] * 3)


def test_elmo_trainer_logs_the_weights_of_each_mix_that_learns(tmp_path: Path) -> None:
    model = make_task_model("labelling", **LSTM)
    mixes = model.elmo.scalar_mixes
    mixes[0].requires_grad_(False)
    with torch.no_grad():
        mixes[1].scale.fill_(1.5)
    trainer = make_trainer(model, "labelling", tmp_path, ElmoTrainer, max_steps=2, eval_strategy="epoch")
    trainer.train()
    first, second, evaluation, _ = trainer.state.log_history
    assert {name for name in second if name.startswith("mix")} == {f"mix_1/{name}" for name in NAMES}
    assert not any(name.startswith("mix") for name in evaluation)
    expected = [*(mixes[1].logits.exp() / mixes[1].logits.exp().sum()).tolist(), mixes[1].scale.item()]
    assert [second[f"mix_1/{name}"] for name in NAMES] == pytest.approx(expected, rel=1e-6)
    assert first["mix_1/layer_0"] != second["mix_1/layer_0"]


@pytest.mark.parametrize("task", ["classification", "labelling", "crf", "questions"])
def test_accumulated_batches_are_one_large_batch(task: str, tmp_path: Path) -> None:
    ends = []
    for size, steps in ((3, 1), (1, 3)):
        model = make_task_model(task, scalar_mix_l2=0.1, representation_dropout=0.0)
        model.elmo.scalar_mixes[0].set_weights([0.1, 0.2, 0.7])
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, "max_steps": 2}
        trainer = make_trainer(model, task, tmp_path, optim="sgd", learning_rate=0.1, **options)
        trainer.train()
        ends.append({name: p for name, p in model.named_parameters() if p.requires_grad})
        ends[-1]["loss"] = torch.tensor(trainer.state.log_history[0]["loss"])
    assert_outputs_close(ends[1], ends[0], 1e-5)


@each_task
def test_gradient_checkpointing_gives_the_same_gradients_where_the_bilm_learns(task: str) -> None:
    batch, gradients = make_batch(task), []
    for checkpointing in (False, True):
        model = make_task_model(task, freeze_bilm=["token_encoder"], representation_dropout=0.0).train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model(**batch).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert_outputs_close(gradients[1], gradients[0])


@each_task
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_model_loaded_in_half_precision_gives_the_same_answers(task: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model, batch = make_task_model(task, **LSTM), make_batch(task)
    model.save_pretrained(tmp_path)
    half = type(model).from_pretrained(tmp_path, dtype=dtype)
    expected, actual = logits_of(model(**batch)), logits_of(half(**batch)).float()
    is_logit = expected.abs() < 1e4  # those that mask or forbid something are lowest in any precision
    assert_outputs_close(actual[is_logit], expected[is_logit], 0.2)
    assert half(**batch).loss.item() == pytest.approx(model(**batch).loss.item(), rel=0.1)


def test_two_processes_learn_what_one_does_from_batches_twice_as_large(tmp_path: Path) -> None:
    fork_two("task_training", tmp_path, "train_as_one_of_two")
    one = train_on_two_texts(tmp_path / "one", per_device_train_batch_size=2).model
    two = torch.load(tmp_path / "two", weights_only=True)
    assert_outputs_close(two, {name: p.detach() for name, p in one.named_parameters()}, 1e-5)


NEEDED = {
    "none": {},
    "word vectors and marks": {"word_vectors": {"num_words": 5, "size": 4, "trainable": True}, "mark_size": 3},
}


@each_task
@pytest.mark.parametrize("needed", NEEDED.values(), ids=NEEDED)
def test_dummy_inputs_are_what_a_model_takes(task: str, needed: dict[str, Any]) -> None:
    model = make_task_model(task, **needed)
    inputs = model.dummy_inputs
    num_positions = 5 * model.num_texts
    assert inputs["input_ids"].shape == (3, num_positions, TINY["max_word_length"])
    assert logits_of(model(**inputs)).isfinite().all()


def test_what_learns_is_said_once_before_training_if_the_bilm_is_frozen(caplog: pytest.LogCaptureFixture) -> None:
    frozen = make_task_model("classification")
    assert caplog.messages == []
    frozen.train()
    frozen.eval()
    frozen.train()
    num_learned = 3 + 1 + 14 * 3 + 3  # the mix, its scale, the classifier
    (message,) = caplog.messages
    assert f"so {num_learned:,} of {frozen.num_parameters():,} numbers learn" in message
    caplog.clear()
    make_task_model("classification", freeze_bilm=False).train()
    make_task_model("classification", freeze_bilm=["token_encoder", "layer_1"]).train()
    make_task_model("classification").requires_grad_(False).train()
    assert caplog.messages == []


@each_task
def test_a_model_without_numbers_gives_the_shapes_of_loss_and_logits(task: str) -> None:
    batch = make_batch(task)
    model = make_task_model(task, **LSTM)
    found = model.to("meta")(**{name: tensor.to("meta") for name, tensor in batch.items()})
    expected = make_task_model(task, **LSTM)(**batch)
    assert found.loss.shape == expected.loss.shape
    assert logits_of(found).shape == logits_of(expected).shape

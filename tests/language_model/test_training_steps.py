"""Four consecutive steps of training are bilm-tf's, with full and sampled softmax and with word input.

The carried numbers are of every step but the gradients, which are compared where the shared files are; the last
weights and accumulators hold what all gradients were.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import FIXTURES, Arrays, shared
from one_direction import forward_half
from torch import Tensor
from torch.utils.data import DataLoader

from elmo_hf.conversion.readers.bilm_tf import array_name
from elmo_hf.conversion.readers.hdf5_layout import config_from_options, language_model_rules
from elmo_hf.conversion.rules import import_arrays
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.sampled_softmax import Candidates
from elmo_hf.training.trainer import ElmoPretrainer, PretrainingArguments

CASES = ["full_char", "sampled_char", "full_word"]
NUM_STEPS = 4
TOLERANCE = 1e-5
LEARNING_RATE = 0.2
Tensors = dict[str, Tensor]


class Golden:
    """One case: bilm-tf's options and arrays."""

    def __init__(self, name: str, archive: Path) -> None:
        options = (FIXTURES / "bilm_tf_steps" / name / "options.json").read_text(encoding="utf-8")
        self.options: dict[str, Any] = json.loads(options)
        with np.load(archive) as file:
            self.arrays: Arrays = dict(file)
        initial = self._variables("init/")
        self.config = config_from_options(self.options, {name: array.shape for name, array in initial.items()})

    def _variables(self, prefix: str) -> Arrays:
        found = {name.removeprefix(prefix): array for name, array in self.arrays.items() if name.startswith(prefix)}
        return {array_name(name): array for name, array in found.items()}

    def tensors(self, prefix: str) -> Tensors:
        """Variables, or gradients of them, under the names of our parameters; the padding row is none of them."""
        rules = language_model_rules(self.config)
        return as_tensors(import_arrays(rules, self._variables(prefix), prefix))

    def model(self) -> ElmoForPreTraining:
        model = ElmoForPreTraining(self.config).train()
        missing, unexpected = model.load_state_dict(self.tensors("init/"), strict=False)
        assert not unexpected
        assert all("scalar_mixes" in name for name in missing)
        return model

    def batch(self, step: int) -> dict[str, Tensor]:
        """Arguments of the model; bilm-tf's ids lack our + 1, and its backward arrays are in reading order."""

        def tensor(name: str) -> Tensor:
            return torch.from_numpy(self.arrays[f"step{step}/batch/{name}"].astype(np.int64))

        ids = "tokens_characters" if self.config.token_encoder == "char_cnn" else "token_ids"
        return {
            "input_ids": tensor(ids) + 1,
            "backward_input_ids": tensor(f"{ids}_reverse").flip(1) + 1,
            "forward_targets": tensor("next_token_id"),
            "backward_targets": tensor("next_token_id_reverse").flip(1),
        }

    def candidates(self, step: int) -> tuple[Candidates, Candidates] | None:
        """The words drawn for both directions."""
        if self.config.softmax != "sampled":
            return None
        return self._drawn(f"step{step}/sampler0/"), self._drawn(f"step{step}/sampler1/")

    def _drawn(self, prefix: str) -> Candidates:
        """The file has expected counts; the number of draws is the one that they follow from."""
        words = torch.from_numpy(self.arrays[f"{prefix}sampled"])
        expected = torch.from_numpy(self.arrays[f"{prefix}sampled_expected"]).log()
        numbers = torch.arange(len(words), 2000.0)
        found = Candidates(words, numbers.unsqueeze(1)).log_expected_counts(words, 400)
        distances, best = (found - expected).abs().amax(dim=1).min(dim=0)
        assert distances < TOLERANCE
        return Candidates(words, numbers[best])


class Run:
    """What our four steps leave behind, step by step."""

    def __init__(self, golden: Golden) -> None:
        self.losses: list[tuple[float, float, float]] = []
        self.gradients: list[Tensors] = []
        self.norms: list[float] = []
        self.clipped: list[Tensors] = []
        self.states: list[Arrays] = []
        self.weights: list[Tensors] = []
        self.accumulators: list[Tensors] = []
        model = golden.model()
        named = {name: p for name, p in model.named_parameters() if "scalar_mixes" not in name}
        optimizer = torch.optim.Adagrad(named.values(), lr=LEARNING_RATE, initial_accumulator_value=1.0)
        state = None
        for step in range(NUM_STEPS):
            output = model(**golden.batch(step), state=state, candidates=golden.candidates(step))
            state = output.state
            sampled = "sampled_" if golden.config.softmax == "sampled" else ""
            losses = (output[f"{sampled}forward_loss"], output[f"{sampled}backward_loss"], output.loss)
            self.losses.append(tuple(loss.item() for loss in losses))
            optimizer.zero_grad()
            (output.loss * golden.options["unroll_steps"]).backward()
            self.gradients.append({name: parameter.grad.clone() for name, parameter in named.items()})
            norm = torch.nn.utils.clip_grad_norm_(named.values(), golden.options["all_clip_norm_val"])
            self.norms.append(norm.item())
            self.clipped.append({name: parameter.grad.clone() for name, parameter in named.items()})
            optimizer.step()
            self.weights.append({name: parameter.detach().clone() for name, parameter in named.items()})
            self.accumulators.append({name: optimizer.state[p]["sum"].clone() for name, p in named.items()})
            self.states.append(
                {
                    f"dir{direction}/layer{layer}/{name}": half.numpy()
                    for name, tensor in (("h", state.hidden), ("c", state.cell))
                    for layer, both in enumerate(tensor)
                    for direction, half in enumerate(both.chunk(2, dim=-1))
                }
            )


def as_tensors(arrays: Arrays) -> Tensors:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def assert_same(actual: Tensors, expected: Tensors) -> None:
    assert set(actual) == set(expected)
    for name, tensor in expected.items():
        # TensorFlow has no padding row; ours stays as it is.
        rows = slice(1, None) if "embedding" in name else slice(None)
        torch.testing.assert_close(actual[name][rows], tensor[rows], atol=TOLERANCE, rtol=0, msg=name)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Golden, Run]:
    golden = Golden(request.param, FIXTURES / "bilm_tf_steps" / request.param / "expected.npz")
    return golden, Run(golden)


def test_options_become_the_softmax_of_the_run(case: tuple[Golden, Run]) -> None:
    config = case[0].config
    is_sampled = case[0].options["sample_softmax"]
    assert config.softmax == ("sampled" if is_sampled else "full")
    assert (config.num_softmax_words, config.num_softmax_samples, config.lm_dropout) == (400, 64, 0)


def test_losses_of_every_step_are_bilm_tfs(case: tuple[Golden, Run]) -> None:
    golden, run = case
    for step in range(NUM_STEPS):
        names = ("loss_forward", "loss_backward", "loss")
        expected = [golden.arrays[f"step{step}/{name}"].item() for name in names]
        assert run.losses[step] == pytest.approx(expected, abs=TOLERANCE)


def test_the_first_step_of_the_forward_half_is_bilm_tfs(case: tuple[Golden, Run]) -> None:
    golden, _ = case
    drawn, batch = golden.candidates(0), golden.batch(0)
    forward = {name: tensor for name, tensor in batch.items() if not name.startswith("backward")}
    output = forward_half(golden.model())(**forward, candidates=drawn and drawn[:1])
    assert output.loss.item() == pytest.approx(golden.arrays["step0/loss_forward"].item(), abs=TOLERANCE)
    for name, state in (("h", output.state.hidden), ("c", output.state.cell)):
        for layer, found in enumerate(state.detach().numpy()):
            expected = golden.arrays[f"step0/state/dir0/layer{layer}/{name}"]
            np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)


def test_global_norms_of_every_step_are_bilm_tfs(case: tuple[Golden, Run]) -> None:
    golden, run = case
    expected = [golden.arrays[f"step{step}/global_norm_before_clip"].item() for step in range(NUM_STEPS)]
    assert run.norms == pytest.approx(expected, abs=TOLERANCE)


def test_states_after_every_step_are_bilm_tfs(case: tuple[Golden, Run]) -> None:
    golden, run = case
    for step in range(NUM_STEPS):
        assert len(run.states[step]) == 8
        for name, state in run.states[step].items():
            np.testing.assert_allclose(state, golden.arrays[f"step{step}/state/{name}"], atol=TOLERANCE, rtol=0)


def test_weights_and_accumulators_after_the_last_step_are_bilm_tfs(case: tuple[Golden, Run]) -> None:
    golden, run = case
    assert_same(run.weights[-1], golden.tensors("step3/after/"))
    assert_same(run.accumulators[-1], golden.tensors("step3/accumulator/"))


def test_padding_row_learns_nothing(case: tuple[Golden, Run]) -> None:
    name = "elmo.token_encoder.embedding.weight"
    assert all(weights[name][0].abs().max() == 0 for weights in case[1].weights)


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_weights_of_every_step_are_bilm_tfs(name: str) -> None:
    golden = Golden(name, shared("fixtures", "bilm_tf_steps", name, "golden.npz"))
    run = Run(golden)
    for step in range(NUM_STEPS):
        assert_same(run.gradients[step], golden.tensors(f"step{step}/grad/"))
        assert_same(run.clipped[step], golden.tensors(f"step{step}/grad_clipped/"))
        assert_same(run.weights[step], golden.tensors(f"step{step}/after/"))
        assert_same(run.accumulators[step], golden.tensors(f"step{step}/accumulator/"))


class Replay(ElmoPretrainer):
    """The trainer on given batches."""

    def __init__(self, batches: list[dict[str, Tensor]], *args: Any) -> None:
        super().__init__(*args)
        self.batches = batches

    def get_train_dataloader(self) -> DataLoader:
        return DataLoader(self.batches, batch_size=None)


@pytest.mark.parametrize("name", ["full_char", "full_word"])
def test_the_trainer_with_its_defaults_takes_bilm_tfs_steps(name: str, tmp_path: Path) -> None:
    golden = Golden(name, FIXTURES / "bilm_tf_steps" / name / "expected.npz")
    model = golden.model()
    arguments = PretrainingArguments(
        str(tmp_path),
        unroll_steps=golden.options["unroll_steps"],
        max_steps=NUM_STEPS,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Replay([golden.batch(step) for step in range(NUM_STEPS)], model, arguments)
    trainer.train()
    expected = golden.tensors("step3/after/")
    named = {name: parameter.detach() for name, parameter in model.named_parameters() if name in expected}
    assert_same(named, expected)
    accumulators = {name: trainer.optimizer.state[dict(model.named_parameters())[name]]["sum"] for name in expected}
    assert_same(accumulators, golden.tensors("step3/accumulator/"))
    logs = [log for log in trainer.state.log_history if "loss" in log]
    for step, log in enumerate(logs):
        for key, theirs in (("loss", "loss"), ("forward_loss", "loss_forward"), ("backward_loss", "loss_backward")):
            # Logs are rounded to four places.
            assert log[key] == pytest.approx(golden.arrays[f"step{step}/{theirs}"].item(), abs=6e-5)
        norm = golden.arrays[f"step{step}/global_norm_before_clip"].item()
        assert log["grad_norm"] == pytest.approx(norm, abs=TOLERANCE)

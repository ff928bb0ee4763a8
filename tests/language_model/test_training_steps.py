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
        arrays = import_arrays(rules, self._variables(prefix), prefix)
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

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


def assert_same(actual: Tensors, expected: Tensors) -> None:
    assert set(actual) == set(expected)
    for name, tensor in expected.items():
        # TensorFlow has no padding row; ours stays as it is.
        rows = slice(1, None) if "embedding" in name else slice(None)
        torch.testing.assert_close(actual[name][rows], tensor[rows], atol=TOLERANCE, rtol=0, msg=name)


@pytest.mark.parametrize("has_all", [False, True], ids=["carried", "shared"])
@pytest.mark.parametrize("name", CASES)
def test_every_step_is_bilm_tfs(name: str, has_all: bool) -> None:
    """Losses, norms and states of every step, and the last weights; where the shared files are, all of every step."""
    carried = FIXTURES / "bilm_tf_steps" / name / "expected.npz"
    golden = Golden(name, shared("fixtures", "bilm_tf_steps", name, "golden.npz") if has_all else carried)
    model, arrays = golden.model(), golden.arrays
    named = {name: p for name, p in model.named_parameters() if "scalar_mixes" not in name}
    optimizer = torch.optim.Adagrad(named.values(), lr=LEARNING_RATE, initial_accumulator_value=1.0)
    state, sampled = None, "sampled_" if golden.config.softmax == "sampled" else ""
    for step in range(NUM_STEPS):
        output = model(**golden.batch(step), state=state, candidates=golden.candidates(step))
        state = output.state
        for ours, theirs in (
            (f"{sampled}forward_loss", "loss_forward"),
            (f"{sampled}backward_loss", "loss_backward"),
            ("loss", "loss"),
        ):
            assert output[ours].item() == pytest.approx(arrays[f"step{step}/{theirs}"].item(), abs=TOLERANCE)
        for letter, both in (("h", state.hidden), ("c", state.cell)):
            for layer, halves in enumerate(both):
                for direction, found in enumerate(halves.chunk(2, dim=-1)):
                    expected = arrays[f"step{step}/state/dir{direction}/layer{layer}/{letter}"]
                    np.testing.assert_allclose(found.numpy(), expected, atol=TOLERANCE, rtol=0)
        optimizer.zero_grad()
        (output.loss * golden.options["unroll_steps"]).backward()
        gradients = {name: parameter.grad.clone() for name, parameter in named.items()}
        norm = torch.nn.utils.clip_grad_norm_(named.values(), golden.options["all_clip_norm_val"])
        assert norm.item() == pytest.approx(arrays[f"step{step}/global_norm_before_clip"].item(), abs=TOLERANCE)
        if has_all:
            assert_same(gradients, golden.tensors(f"step{step}/grad/"))
            assert_same({name: p.grad for name, p in named.items()}, golden.tensors(f"step{step}/grad_clipped/"))
        optimizer.step()
        if has_all or step == NUM_STEPS - 1:
            assert_same({name: p.detach() for name, p in named.items()}, golden.tensors(f"step{step}/after/"))
            accumulators = {name: optimizer.state[p]["sum"] for name, p in named.items()}
            assert_same(accumulators, golden.tensors(f"step{step}/accumulator/"))
        assert model.get_input_embeddings().weight[0].abs().max() == 0  # the padding row learns nothing


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

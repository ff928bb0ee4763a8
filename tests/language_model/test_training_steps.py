"""Four consecutive steps of training are bilm-tf's, with full and sampled softmax and with word input.

Gradients are not compared by themselves: the last weights and accumulators depend on the gradients of all steps.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from elmo_hf import ElmoForPreTraining
from elmo_hf.conversion.readers.bilm_tf import array_name
from elmo_hf.conversion.readers.hdf5_layout import config_from_options, language_model_rules
from elmo_hf.conversion.rules import import_arrays
from elmo_hf.language_model.sampled_softmax import Candidates
from elmo_hf.training.trainer import ElmoPretrainer, PretrainingArguments
from tests.helpers.checkpoints import FIXTURES, Arrays

NUM_STEPS = 4
TOLERANCE = 1e-5
Tensors = dict[str, Tensor]


class Golden:
    def __init__(self, name: str) -> None:
        folder = FIXTURES / "bilm_tf_steps" / name
        self.options: dict[str, Any] = json.loads((folder / "options.json").read_text(encoding="utf-8"))
        with np.load(folder / "expected.npz") as file:
            self.arrays: Arrays = dict(file)
        initial = self._variables("init/")
        self.config = config_from_options(self.options, {name: array.shape for name, array in initial.items()})

    def _variables(self, prefix: str) -> Arrays:
        found = {name: array for name, array in self.arrays.items() if name.startswith(prefix)}
        return {array_name(name.removeprefix(prefix)): array for name, array in found.items()}

    def tensors(self, prefix: str) -> Tensors:
        """Variables, or their accumulators, by the names of our parameters, without the padding row."""
        arrays = import_arrays(language_model_rules(self.config), self._variables(prefix), prefix)
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


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, atol=TOLERANCE, rtol=0)


def assert_same(actual: Tensors, expected: Tensors) -> None:
    assert set(actual) == set(expected)
    for name, tensor in expected.items():
        # TensorFlow has no padding row; ours stays as it is.
        rows = slice(1, None) if "embedding" in name else slice(None)
        torch.testing.assert_close(actual[name][rows], tensor[rows], atol=TOLERANCE, rtol=0, msg=name)


@pytest.mark.parametrize("name", ["full_char", "sampled_char", "full_word"])
def test_every_step_is_bilm_tfs(name: str) -> None:
    """Losses, norms and states of every step, and the last weights and accumulators."""
    golden = Golden(name)
    model, arrays = golden.model(), golden.arrays
    named = {name: p for name, p in model.named_parameters() if "scalar_mixes" not in name}
    optimizer = torch.optim.Adagrad(named.values(), lr=0.2, initial_accumulator_value=1.0)
    state, sampled = None, "sampled_" if golden.config.softmax == "sampled" else ""
    for step in range(NUM_STEPS):
        output = model(**golden.batch(step), state=state, candidates=golden.candidates(step))
        state = output.state
        found = [output[f"{sampled}forward_loss"], output[f"{sampled}backward_loss"], output.loss]
        expected = [arrays[f"step{step}/{loss}"] for loss in ("loss_forward", "loss_backward", "loss")]
        assert_close(torch.stack(found).numpy(force=True), np.array(expected))
        for letter, both in (("h", state.hidden), ("c", state.cell)):
            for layer, halves in enumerate(both):
                for direction, half in enumerate(halves.chunk(2, dim=-1)):
                    assert_close(half.numpy(), arrays[f"step{step}/state/dir{direction}/layer{layer}/{letter}"])
        optimizer.zero_grad()
        (output.loss * golden.options["unroll_steps"]).backward()
        norm = torch.nn.utils.clip_grad_norm_(named.values(), golden.options["all_clip_norm_val"])
        assert_close(norm.numpy(), arrays[f"step{step}/global_norm_before_clip"])
        optimizer.step()
        assert model.get_input_embeddings().weight[0].abs().max() == 0  # the padding row learns nothing
    assert_same({name: p.detach() for name, p in named.items()}, golden.tensors("step3/after/"))
    assert_same({name: optimizer.state[p]["sum"] for name, p in named.items()}, golden.tensors("step3/accumulator/"))


@pytest.mark.parametrize("name", ["full_char", "full_word"])
def test_the_trainer_with_its_defaults_takes_bilm_tfs_steps(name: str, tmp_path: Path) -> None:
    golden = Golden(name)
    model = golden.model()
    others = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    arguments = PretrainingArguments(str(tmp_path), max_steps=NUM_STEPS, **others)
    # Defaults that these batches do not show.
    assert (arguments.unroll_steps, arguments.per_device_train_batch_size, arguments.num_train_epochs) == (20, 128, 10)
    arguments.unroll_steps = golden.options["unroll_steps"]
    trainer, batches = ElmoPretrainer(model, arguments), [golden.batch(step) for step in range(NUM_STEPS)]
    trainer.get_train_dataloader = lambda: DataLoader(batches, batch_size=None)
    trainer.train()
    expected = golden.tensors("step3/after/")
    named = {name: parameter.detach() for name, parameter in model.named_parameters() if name in expected}
    assert_same(named, expected)

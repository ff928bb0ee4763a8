"""Pretraining and adapting an ELMo with the Trainer of transformers (bilm-tf's `train`).

One step takes a window of T steps of every row (`streams.py`) and minimises

    T . (forward loss + backward loss) / 2          of a model of one direction, T . forward loss

with one clip of the global gradient norm and Adagrad, whose accumulator starts at 1. Because of this start value and
the clip, the factor T changes the result. The next window starts from the LSTM state after a window, but no gradient
passes between them (truncated back-propagation through time). The defaults are bilm-tf's; each is one setting of
`PretrainingArguments`.

With several processes, each trains its own rows of the same streams. N processes of B rows compute the same as one
process of N x B rows, except for the order of sums and the random numbers of dropout and sampling, which each process
draws itself, like bilm-tf's towers.

Held-out text is scored with the full softmax, in all directions, from the zero state (as ELMo is used) and with the
state carried (bilm-tf's test). A checkpoint has the weights, the LSTM state, the optimiser and the random generators.
The step count determines the place in the data, so a killed run resumes bit for bit.

Glossary: B rows of a process, T steps of a window.

Deliberate differences from bilm-tf: sampled losses have their own names in the logs; held-out text is scored during
training; a sentence may begin from the zero state (`reset_probability`).
"""

import json
import logging
import math
import shutil
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.trainer_utils import TrainOutput

from ..disk.checksums import write_sums
from ..folder.saved_json import naming
from ..language_model.corpus import Corpus
from ..language_model.scoring import evaluating, score_carried, score_from_zero
from ..language_model.streams import SentenceStream, window_arguments
from ..model.language_model_elmo import DIRECTIONS
from ..public import BiLMState, ElmoForPreTraining
from ..share.training_card import ElmoTrainer
from ..text.notes import note
from .checkpoints import (
    RECORD,
    best_score,
    checkpoint_folder,
    complete_checkpoints,
    newest_checkpoint,
    refuse_damaged,
    refuse_damaged_best,
    remove_old_checkpoints,
)
from .window_losses import LOSS, WindowLosses

logger = logging.getLogger(__name__)
LOSSES = ("forward_loss", "backward_loss", "sampled_forward_loss", "sampled_backward_loss")
# The held-out perplexities, in the order in which they are logged.
PERPLEXITIES = (
    "eval_forward_perplexity",
    "eval_backward_perplexity",
    "eval_perplexity",
    "eval_carried_forward_perplexity",
    "eval_carried_backward_perplexity",
    "eval_carried_perplexity",
)
# The keys of an entry of the log in their order, which the state of a checkpoint does not keep.
LOG_KEYS = (LOSS, "grad_norm", "learning_rate", *LOSSES, *PERPLEXITIES, "eval_loss", "epoch", "step")


@dataclass
class PretrainingArguments(TrainingArguments):
    """Settings of a training run: those of the Trainer, with bilm-tf's values as defaults, and some more.

    `per_device_train_batch_size` is B; `num_train_epochs` counts passes over the corpus.

    Attributes:
        unroll_steps: T, words of a row in one step; gradients do not go further back.
        scale_loss_by_steps: whether to multiply the loss by T before computing its gradient, as bilm-tf does.
        adagrad_start: initial value of Adagrad's accumulator (torch's own default is 0).
        reset_probability: chance that a sentence begins from the zero state; 0 in bilm-tf.
        frozen_steps: number of first steps in which only the softmax learns, for a model that had none. If it is not
            below the number of all steps, the vectors do not change, and a note says so.
    """

    unroll_steps: int = 20
    scale_loss_by_steps: bool = True
    adagrad_start: float = 1.0
    reset_probability: float = 0.1
    frozen_steps: int = 0
    per_device_train_batch_size: int = 128
    num_train_epochs: float = 10
    learning_rate: float = 0.2
    lr_scheduler_type: str = "constant"
    max_grad_norm: float = 10.0
    optim: str = "adagrad"
    # Logs a loss of NaN as NaN.
    logging_nan_inf_filter: bool = False
    # The scalar mixes do not affect the loss.
    ddp_find_unused_parameters: bool | None = True

    @property
    def device(self) -> torch.device:
        """The device of this process, without the index that accelerate gives a CPU and torch cannot load to."""
        device = super().device
        return torch.device("cpu") if device.type == "cpu" else device

    @property
    def n_gpu(self) -> int:
        """At most 1: each process trains on one device, so several GPUs need several processes (`torchrun`)."""
        return min(super().n_gpu, 1)


@dataclass
class Windows(Dataset):
    """Windows of the corpus, as arguments of `ElmoForPreTraining`, with the rows `rows` of `num_rows`."""

    corpus: Corpus
    num_rows: int
    rows: range
    args: PretrainingArguments
    num_directions: int = 2
    # Made on first use, because this object is pickled for the workers of a DataLoader.
    streams: list[SentenceStream] = field(default_factory=list)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """The window at `index`; moving forward is cheap, moving back restarts the streams."""
        step = index * self.args.unroll_steps
        if not self.streams or step < self.streams[0].step:
            self._restart()
        for stream in self.streams:
            stream.skip(step - stream.step)
        windows = [stream.take(self.args.unroll_steps, self.rows) for stream in self.streams]
        return window_arguments(self.corpus, *windows)

    def _restart(self) -> None:
        """Sets the streams of all directions, forward first, to the first step."""
        args = self.args
        self.streams = []
        for direction in DIRECTIONS[: self.num_directions]:
            stream = SentenceStream(
                self.corpus,
                self.num_rows,
                is_backward=direction == "backward",
                seed=args.seed if args.data_seed is None else args.data_seed,
                reset_probability=args.reset_probability,
            )
            self.streams.append(stream)


@dataclass(eq=False)
class WindowIndices(Sampler):
    """Batch sampler of window indices, which are counted through all passes; the trainer counts the passes."""

    num_windows: int
    trainer: Trainer

    def __iter__(self) -> Iterator[list[int]]:
        """One window per batch; none for a resumed run that was killed after its last step."""
        if self.trainer.state.global_step >= self.trainer.state.max_steps:
            return iter([])
        first = int(self.trainer.state.epoch or 0) * self.num_windows
        return iter([[index] for index in range(first, first + self.num_windows)])

    def __len__(self) -> int:
        """Windows of a pass."""
        return self.num_windows


class ElmoPretrainer(ElmoTrainer, TrainerCallback):
    """A Trainer that carries the LSTM state from step to step, and is one of its own callbacks.

    `train_dataset` and `eval_dataset` are of class `Corpus`.
    """

    control: TrainerControl

    def __init__(
        self,
        model: ElmoForPreTraining,
        args: PretrainingArguments,
        record: Mapping[str, str] | None = None,
        callbacks: Sequence[TrainerCallback] | None = None,
        **kwargs: Any,
    ) -> None:
        """Takes the arguments of `Trainer`, and the record of the run, of which each checkpoint gets a copy."""
        # The trainer comes before the progress bar, which the Trainer adds, so that a note has a line of its own.
        super().__init__(model, args, callbacks=[*(callbacks or []), self], **kwargs)
        self._record = record
        self._most_checkpoints = args.save_total_limit
        self.bilm_state: BiLMState | None = None
        self._loss_scale = args.unroll_steps if args.scale_loss_by_steps else 1
        self._losses = WindowLosses()

    def get_train_dataloader(self) -> DataLoader:
        """Windows of this process's rows."""
        corpus = self.train_dataset
        rows = self.args.per_device_train_batch_size
        steps = self.args.unroll_steps
        num_rows = rows * self.args.world_size
        num_windows = corpus.num_predictions // (num_rows * steps)
        if num_windows == 0:
            raise ValueError(
                f"the corpus has {corpus.num_predictions} predictions, fewer than the {num_rows} x {steps} of one "
                "batch; use a longer corpus, fewer rows or fewer steps."
            )
        first = self.args.process_index * rows
        return DataLoader(
            Windows(corpus, num_rows, range(first, first + rows), self.args, self.model.config.num_directions),
            batch_sampler=WindowIndices(num_windows, self),
            collate_fn=itemgetter(0),
            num_workers=self.args.dataloader_num_workers,
        )

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: PretrainingArguments, *others: Any) -> tuple[Any, dict[str, Any]]:
        """The Trainer's optimiser; Adagrad with `adagrad_start` and, on CPUs, fused into one pass over the weights."""
        optimizer_class, settings = Trainer.get_optimizer_cls_and_kwargs(args, *others)
        if args.optim == "adagrad":
            settings["initial_accumulator_value"] = args.adagrad_start
            # Adagrad's gains by it on CPUs; None leaves the choice to torch.
            settings["fused"] = True if args.device.type == "cpu" else None
        return optimizer_class, settings

    def compute_loss(self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        """The loss of one window, from the state after the previous window."""
        outputs = model(**inputs, state=self.bilm_state)
        self.bilm_state = outputs.state
        names = [name for name in (LOSS, *LOSSES) if outputs.get(name) is not None]
        self._losses.add({name: outputs[name] for name in names})
        return outputs["loss"] * self._loss_scale

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Trains on one window; returns its loss in nats per prediction, without the factor T."""
        if self.args.frozen_steps:
            model = self.accelerator.unwrap_model(self.model)
            is_frozen = self.state.global_step < self.args.frozen_steps
            model.elmo.token_encoder.requires_grad_(not is_frozen)
            model.elmo.bilm.requires_grad_(not is_frozen)
        return super().training_step(*args, **kwargs) / self._loss_scale

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Replaces the Trainer's mean losses, which forget what was before a checkpoint; adds those of directions."""
        if LOSS in logs:
            means = self._losses.take_means()
            logs[LOSS] = self._mean_of_processes(means.pop(LOSS))
            for name, mean in means.items():
                logs[name] = self._mean_of_processes(mean)
        if "train_loss" in logs:
            del logs["train_loss"]
            mean_of_all = self._losses.mean_of_all()
            if mean_of_all is not None:
                logs["train_loss"] = self._mean_of_processes(mean_of_all.float().to(self.args.device))
        super().log(logs, *args, **kwargs)

    def _mean_of_processes(self, number: Tensor) -> float:
        return self.accelerator.reduce(number, reduction="mean").item()

    def evaluate(
        self, eval_dataset: Corpus | None = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Scores held-out text; the names of the metrics contain direction and state."""
        corpus = self.eval_dataset if eval_dataset is None else eval_dataset
        metrics: dict[str, float] = {}
        if self.accelerator.is_main_process:
            model = self.accelerator.unwrap_model(self.model)
            with evaluating(model):
                scored = {"": score_from_zero(model, corpus), "carried_": score_carried(model, corpus)}
            for state, scores in scored.items():
                for direction in DIRECTIONS[: model.config.num_directions]:
                    name = f"{direction}_perplexity"
                    metrics[f"{metric_key_prefix}_{state}{name}"] = getattr(scores, name)
                metrics[f"{metric_key_prefix}_{state}perplexity"] = scores.perplexity
            metrics[f"{metric_key_prefix}_loss"] = math.log(scored[""].perplexity)
        (metrics,) = broadcast_object_list([metrics])
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Trains as `Trainer.train` does; True resumes from the newest checkpoint that is complete and undamaged.

        Returns:
            the Trainer's result, with the mean loss of all windows of the run as `training_loss`; NaN if none is known.

        Raises:
            ValueError: if the named checkpoint is incomplete or damaged, or True finds no complete one.
        """
        if resume_from_checkpoint is True:
            newest = newest_checkpoint(Path(self.args.output_dir))
            if newest is None:
                raise ValueError(f"{self.args.output_dir} has no complete checkpoint to resume from.")
            resume_from_checkpoint = str(newest)
        elif resume_from_checkpoint:
            refuse_damaged(Path(resume_from_checkpoint))
        self._losses = WindowLosses()
        if resume_from_checkpoint:
            self._load_losses(resume_from_checkpoint)
        # The Trainer would remove checkpoints by the times of folders, and folders whose names only begin alike.
        self._most_checkpoints = self.args.save_total_limit
        self.args.save_total_limit = None
        try:
            output = super().train(resume_from_checkpoint, **kwargs)
        finally:
            self.args.save_total_limit = self._most_checkpoints
        return output._replace(training_loss=output.metrics.get("train_loss", math.nan))

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Removes older checkpoints only when the new one is complete and on the disk."""
        output, step = Path(self.args.output_dir), self.state.global_step
        folder = checkpoint_folder(output, step)
        if self.args.should_save and folder.exists():
            shutil.rmtree(folder)  # it is incomplete or damaged, and its files could pass for new ones
        self.accelerator.wait_for_everyone()
        self._choose_best({*complete_checkpoints(output), step})
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            if self._record is not None:
                (folder / RECORD).write_text(json.dumps(self._record, indent=1) + "\n", encoding="utf-8")
            write_sums(folder)
            remove_old_checkpoints(output, self._most_checkpoints, step, self.state.best_global_step)

    def _choose_best(self, steps: Collection[int]) -> None:
        """Sets the best checkpoint of `steps`, its step and its score, all of them or none.

        The Trainer keeps the best score when its checkpoint is gone, or if it has none. Then the scores of later
        checkpoints would be compared with it, and it would pass for the score of other weights.
        """
        metric = self.args.metric_for_best_model
        best = None
        if metric is not None:
            name = f"eval_{metric.removeprefix('eval_')}"
            best = best_score(self.state.log_history, name, bool(self.args.greater_is_better), steps)
        self.state.best_metric = None
        self.state.best_global_step = None
        self.state.best_model_checkpoint = None
        if best is not None:
            self.state.best_metric = best.score
            self.state.best_global_step = best.step
            self.state.best_model_checkpoint = str(checkpoint_folder(Path(self.args.output_dir), best.step))

    def _load_best_model(self) -> None:
        """Refuses a checkpoint that was damaged since it was written."""
        refuse_damaged_best(Path(self.state.best_model_checkpoint))
        super()._load_best_model()

    @property
    def scores_of_weights(self) -> dict[str, float]:
        """The held-out scores in the log that were measured of the present weights; empty if there are none."""
        measured = [entry for entry in self.state.log_history if "eval_perplexity" in entry]
        of_weights = [entry for entry in measured if entry["step"] == self.step_of_weights]
        return of_weights[-1] if of_weights else {}

    def _save_rng_state(self, output_dir: str) -> None:
        """Saves this process's LSTM state and losses with its random generators."""
        super()._save_rng_state(output_dir)
        assert self.bilm_state is not None
        state = {name: tensor.contiguous() for name, tensor in self.bilm_state._asdict().items()}
        save_file(state, self._state_file(output_dir))
        self._losses.save(self._losses_file(output_dir))
        self.accelerator.wait_for_everyone()  # all files are there when the list of them is written

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Also refuses a file whose tensors take more memory than it has bytes, by members or numbers that repeat."""
        if checkpoint is None:
            return
        path = Path(checkpoint, OPTIMIZER_NAME)
        with naming(f"{path} or {SCHEDULER_NAME} is damaged"):
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.filelist)
            if size <= path.stat().st_size:
                state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
                size = sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, Tensor))
            if size > path.stat().st_size:
                raise ValueError(f"it would take {size:,} bytes")
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with naming(f"the random state in {checkpoint} is damaged"):
            super()._load_rng_state(checkpoint)
            if checkpoint is not None:
                state = load_file(self._state_file(checkpoint))
                self.bilm_state = BiLMState(**{name: tensor.to(self.args.device) for name, tensor in state.items()})

    def _load_losses(self, checkpoint: str) -> None:
        """Takes the losses of this process from a checkpoint; those of earlier versions have none."""
        path = self._losses_file(checkpoint)
        if path.exists():
            self._losses = WindowLosses.load(path, self.args.device)

    def _state_file(self, folder: str) -> Path:
        return Path(folder, f"bilm_state_{self.args.process_index}.safetensors")

    def _losses_file(self, folder: str) -> Path:
        return Path(folder, f"losses_{self.args.process_index}.json")

    def on_train_begin(
        self, args: PretrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Prepares training after a checkpoint was loaded."""
        self.bilm_state = None
        # In a checkpoint, `fused` is set for the device that wrote it.
        optimizer = kwargs["optimizer"]
        for group in optimizer.param_groups:
            if "fused" in group:
                group["fused"] = optimizer.defaults["fused"]
        # In a checkpoint are the steps between logs and checkpoints that its run was started with.
        state.compute_steps(args, state.max_steps)
        state.log_history = [_in_order(entry) for entry in state.log_history]
        self._find_best_again()
        if self._learns_softmax_alone and self.is_world_process_zero():
            note(
                f"The run has {state.max_steps:,} steps, and the first {args.frozen_steps:,} are frozen, so only the "
                "softmax learns, and the vectors stay those of the model at the start. To adapt them too, give fewer "
                "frozen steps or more epochs."
            )
        # Dropout and sampling differ between processes, as between bilm-tf's towers.
        torch.manual_seed(args.seed + args.process_index)

    @property
    def _learns_softmax_alone(self) -> bool:
        """Whether all steps of the run are frozen steps; their number is known when training begins."""
        return self.args.frozen_steps >= self.state.max_steps > 0

    def _settings(self) -> dict[str, Any]:
        """The settings for the card, which says if only the softmax learned."""
        settings = super()._settings()
        if self._learns_softmax_alone:
            settings["frozen_steps"] = (
                f"{self.args.frozen_steps}; the run has {self.state.max_steps} steps, so only the softmax learned"
            )
        return settings

    def _find_best_again(self) -> None:
        """Chooses the best checkpoint among those that are there; the folder may have been moved, and some removed."""
        output, before = Path(self.args.output_dir), self.state.best_global_step
        self._choose_best(complete_checkpoints(output))
        best = self.state.best_global_step
        if best is not None:
            refuse_damaged_best(checkpoint_folder(output, best))
        if before not in (None, best) and self.is_world_process_zero():
            others = f"the best of the others is that of step {best}"
            if best is None:
                others = "no other checkpoint has a score"
            logger.warning("%s, the best checkpoint, is not there; %s.", checkpoint_folder(output, before), others)


def _in_order(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of the log with its keys as they were logged; others come first."""
    others = [key for key in entry if key not in LOG_KEYS]
    return {key: entry[key] for key in (*others, *LOG_KEYS) if key in entry}

"""A `Trainer` that writes a full model card: hyper-parameters, scores and limits are filled in automatically.

transformers' Trainer writes a draft card at every push. `transformers.modelcard.TrainingSummary` collects the numbers
for both; here they go into `model_cards/template.md`, which adds how to load the model and its limits. The logs of a
training have the mixes of layers. In all else `ElmoTrainer` equals `Trainer`.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult
from transformers import Trainer, TrainingArguments
from transformers.modelcard import TrainingSummary

from ..folder.loading import MODEL_ON_HUB, TINY
from ..model.heads_elmo import ElmoTaskModel
from ..text.escapes import printable
from .model_card import FEATURE_EXTRACTION, TASKS, as_list, auto_class_of, loading_line, render_card
from .saved_card import CARD, write_card


class ElmoTrainer(Trainer):
    """transformers' `Trainer` with the full model card, and with the mixes of layers in its logs."""

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Adds a task model's scalar mixes that learn to each log of a training loss: true weights, and the scale.

        The keys are `mix_0/layer_0` to `mix_0/layer_L` and `mix_0/scale`; a second mix has `mix_1`.
        """
        mixes = self.model.scalar_mixes_of_all() if "loss" in logs and isinstance(self.model, ElmoTaskModel) else []
        for number, mix in enumerate(mixes):
            if mix.logits.requires_grad:
                logs |= {f"mix_{number}/layer_{k}": weight for k, weight in enumerate(mix.weights.tolist())}
                logs[f"mix_{number}/scale"] = mix.scale.item()
        super().log(logs, *args, **kwargs)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """Pushes as `Trainer.push_to_hub` does, and prints a line that loads the model."""
        pushed = super().push_to_hub(*args, **kwargs)
        if self.is_world_process_zero():
            line = loading_line(self.hub_model_id, self.model.config, self._auto_class, getattr(pushed, "oid", None))
            print(f"This line loads it and runs it:\n{line}")  # noqa: T201
        return pushed

    @property
    def _auto_class(self) -> str:
        return auto_class_of(type(self.model).__name__, self.model.config.auto_map)

    @property
    def step_of_weights(self) -> int:
        """The step after which the model had its present weights: the last one, or that of the best checkpoint.

        The Trainer loads `state.best_model_checkpoint` at the end of training. `state.best_global_step` may be another
        step, after which nothing was saved, or whose checkpoint is gone.
        """
        best = self.state.best_model_checkpoint
        if self.is_in_train or best is None or not self.args.load_best_model_at_end:
            return self.state.global_step
        return int(best.rpartition("-")[2])

    def create_model_card(self, model_name: str | None = None, **labels: Any) -> None:
        """Writes README.md into `args.output_dir`, in the main process; `push_to_hub` calls it.

        Args:
            model_name: the title; None uses the name of the repository that the trainer pushes to, or of the folder.
                The snippet loads that repository, or else the folder of this name.
            **labels: those of `Trainer.create_model_card`: `language`, `license`, `tags`, `finetuned_from`, `tasks`,
                `dataset`, `dataset_tags` and `dataset_args`. The last two are Hub names and configurations; with them
                the metadata has the scores too. `finetuned_from` may also be a folder or `"tiny"`.
        """
        if not self.is_world_process_zero():
            return
        name = model_name or (self.hub_model_id or "").rpartition("/")[2] or None
        summary = TrainingSummary.from_trainer(self, model_name=name, **labels)
        log = self.state.log_history
        if log and "train_runtime" in log[-1] and summary.eval_results:
            # The summary has the scores of the last evaluation, and nothing was evaluated since training ended.
            rows = [row for row in summary.eval_lines if row["Step"] == self.step_of_weights]
            scored = {"Loss" if key == "Validation Loss" else key: value for row in rows for key, value in row.items()}
            summary.eval_results = {name: scored[name] for name in summary.eval_results if name in scored}
        task = summary.tasks or TASKS.get(self._auto_class, FEATURE_EXTRACTION)
        start = str(summary.finetuned_from or "")
        is_on_hub = MODEL_ON_HUB.fullmatch(start) and not Path(start).exists()
        scores = _scores(summary, task)
        own = {field.name for field in fields(self.args)} - {field.name for field in fields(TrainingArguments)}
        settings = summary.hyperparameters | {name: getattr(self.args, name) for name in sorted(own)}
        summary.hyperparameters = _readable(settings)
        summary.eval_results = _readable(summary.eval_results or {})
        summary.eval_lines = [_readable(row) for row in summary.eval_lines or ()]
        summary.dataset = ", ".join(as_list(summary.dataset))
        summary.finetuned_from = start if start == TINY else Path(start).name
        card = render_card(
            summary.model_name,
            config=self.model.config,
            num_parameters=self.model.num_parameters(),
            repository=self.hub_model_id,
            auto_class=self._auto_class,
            pipeline_tag=task,
            run=summary,
            tags=["elmo", "bilm", *as_list(summary.tags)],
            language=summary.language,
            license=summary.license,
            base_model=start if is_on_hub else None,
            datasets=as_list(summary.dataset_tags) or None,
            model_name=printable(summary.model_name) if scores else None,
            eval_results=scores or None,
            word_splitter=getattr(self.processing_class, "word_splitter", "ptb"),
        )
        path = Path(self.args.output_dir, CARD)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_card(path, card)


def _readable(row: dict[str, Any]) -> dict[str, str]:
    """Values as text for table cells."""
    return {
        key: f"{value:.5g}" if isinstance(value, float) else " ".join(str(value).split()) for key, value in row.items()
    }


def _scores(summary: TrainingSummary, task: str) -> list[EvalResult]:
    """The final scores as metadata, if the Hub dataset that they were measured on is known."""
    names = [*as_list(summary.dataset), *as_list(summary.dataset_tags)]
    return [
        EvalResult(
            task_type=task,
            dataset_type=dataset,
            dataset_name=names[0],
            dataset_config=next(iter(as_list(summary.dataset_args)), None),
            metric_type=name.lower().replace(" ", "_"),
            metric_name=name,
            metric_value=value,
        )
        for dataset in as_list(summary.dataset_tags)[:1]
        for name, value in (summary.eval_results or {}).items()
        if isinstance(value, (int, float)) and name != "Loss"
    ]

"""A `Trainer` that writes a full model card: hyper-parameters, scores and limits are filled in automatically.

transformers' Trainer writes a draft card at every push. `transformers.modelcard.TrainingSummary` collects the numbers
for both; here they go into `model_cards/template.md`, which adds how to load the model and its limits. The logs of a
training have the mixes of layers. In all else `ElmoTrainer` equals `Trainer`.
"""

from collections.abc import Sized
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import EvalResult
from transformers import Trainer, TrainingArguments
from transformers.modelcard import TrainingSummary

from ..folder.loading import MODEL_ON_HUB
from ..folder.model_names import TINY, is_missing, model_folder
from ..heads import FEATURE_EXTRACTION
from ..model.heads_elmo import ElmoForSequenceClassification, ElmoTaskModel
from ..text.escapes import printable
from .model_card import TASKS, CardContent, as_list, auto_class_of, loading_line, render_card
from .saved_card import CARD, languages_of, write_card


class ElmoTrainer(Trainer):
    """transformers' `Trainer` with the full model card, and with the mixes of layers in its logs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes the arguments of `Trainer`, and remembers which parts of the training its user made."""
        super().__init__(*args, **kwargs)
        self._has_own_optimizer = self.optimizer is not None or self.optimizer_cls_and_kwargs is not None
        self._has_own_schedule = self.lr_scheduler is not None

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Adds a task model's scalar mixes that learn to each log of a training loss: true weights, and the scale.

        The keys are `mix_0/layer_0` to `mix_0/layer_L` and `mix_0/scale`; a second mix has `mix_1`.
        """
        if "loss" in logs and isinstance(self.model, ElmoTaskModel):
            for number, mix in enumerate(self.model.scalar_mixes_of_all()):
                if mix.logits.requires_grad:
                    logs |= {f"mix_{number}/layer_{k}": weight for k, weight in enumerate(mix.weights.tolist())}
                    logs[f"mix_{number}/scale"] = mix.scale.item()
        super().log(logs, *args, **kwargs)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """Pushes as `Trainer.push_to_hub` does, and prints a line that loads the model."""
        pushed = super().push_to_hub(*args, **kwargs)
        if self.is_world_process_zero():
            commit = getattr(pushed, "oid", None)
            language = kwargs.get("language")
            line = loading_line(self.hub_model_id, self.model.config, self._auto_class, commit, language)
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
                the metadata has the scores too. `finetuned_from` may also be a folder or a short name.
        """
        if not self.is_world_process_zero():
            return
        if not model_name and self.hub_model_id:
            model_name = self.hub_model_id.rpartition("/")[2]
        summary = TrainingSummary.from_trainer(self, model_name=model_name or None, **labels)
        self._use_scores_of_weights(summary)
        task = summary.tasks or TASKS.get(self._auto_class, FEATURE_EXTRACTION)
        start = str(summary.finetuned_from or "")
        is_on_hub = MODEL_ON_HUB.fullmatch(start) and not Path(start).exists()
        scores = _scores(summary, task)
        _make_readable(summary, self._settings() | self._own_hyperparameters() | self._task_settings())
        summary.finetuned_from = start if start == TINY else Path(start).name
        content = CardContent(
            self.model.config,
            num_parameters=self.model.num_parameters(),
            auto_class=self._auto_class,
            word_splitter=getattr(self.processing_class, "word_splitter", "ptb"),
            run=summary,
        )
        metadata = {
            "pipeline_tag": task,
            "tags": ["elmo", "bilm", *as_list(summary.tags)],
            "language": summary.language or _languages_of(start) or None,
            "license": summary.license,
            "base_model": start if is_on_hub else None,
            "datasets": as_list(summary.dataset_tags) or None,
        }
        if scores:
            metadata |= {"model_name": printable(summary.model_name), "eval_results": scores}
        card = render_card(summary.model_name, content, metadata, repository=self.hub_model_id)
        path = Path(self.args.output_dir, CARD)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_card(path, card)

    def _settings(self) -> dict[str, Any]:
        """The arguments that a subclass of `TrainingArguments` adds; transformers lists its own."""
        added = {field.name for field in fields(self.args)} - {field.name for field in fields(TrainingArguments)}
        return {name: getattr(self.args, name) for name in sorted(added)}

    def _own_hyperparameters(self) -> dict[str, str]:
        """The hyper-parameters that the arguments do not decide, because the trainer was given what they describe."""
        own = {}
        if self._has_own_optimizer and self.optimizer is not None:
            own["learning_rate"] = _rates(self.optimizer, self.model)
            own["optimizer"] = _optimizer_line(self.optimizer)
        if self._has_own_schedule:
            schedule = getattr(self.lr_scheduler, "scheduler", self.lr_scheduler)  # accelerate wraps it in training
            own["lr_scheduler_type"] = type(schedule).__name__
        return own

    def _task_settings(self) -> dict[str, Any]:
        """For a task model: the rows that it learned from and was evaluated on, what learns, and the dropout.

        Data without a length, and several evaluation sets, have no number.
        """
        model = self.model
        if not isinstance(model, ElmoTaskModel):
            return {}
        settings: dict[str, Any] = {}
        for name, data in (("training_rows", self.train_dataset), ("evaluation_rows", self.eval_dataset)):
            if isinstance(data, Sized) and not isinstance(data, dict):
                settings[name] = len(data)
        settings["learns"] = _learning_parts(model)
        settings["task_encoder"] = model.config.task_encoder
        if isinstance(model, ElmoForSequenceClassification):
            settings["pooling"] = model.config.pooling
        settings["representation_dropout"] = model.config.representation_dropout
        settings["classifier_dropout"] = model.config.classifier_dropout
        return settings

    def _use_scores_of_weights(self, summary: TrainingSummary) -> None:
        """Replaces the scores of a summary by those of the present weights, if nothing was evaluated since training.

        The summary has the scores of the last evaluation, which may be those of other weights than the best ones.
        """
        log = self.state.log_history
        ended_with_training = len(log) > 0 and "train_runtime" in log[-1]
        if not (ended_with_training and summary.eval_results):
            return
        scored: dict[str, Any] = {}
        for row in summary.eval_lines:
            if row["Step"] == self.step_of_weights:
                scored |= row
        if "Validation Loss" in scored:
            scored["Loss"] = scored["Validation Loss"]
        summary.eval_results = {name: scored[name] for name in summary.eval_results if name in scored}


def _languages_of(start: str) -> list[str]:
    """The languages in the card of the model that training began with, if its folder is on this machine."""
    if not start or is_missing(start):
        return []
    return languages_of(Path(model_folder(start)))


def _learning_parts(model: ElmoTaskModel) -> str:
    """The parts of a model that learn, those of the biLM by the names that `freeze_bilm` takes, and their size."""
    parts = []
    num_learned = 0
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parts.append(_part(name))
            num_learned += parameter.numel()
    named = ", ".join(dict.fromkeys(parts)) or "nothing"
    return f"{named} ({num_learned:,} of {model.num_parameters():,} numbers)"


def _part(parameter_name: str) -> str:
    """The part of a task model that a parameter belongs to, such as `layer_1`, `scalar_mixes` or `classifier`."""
    module, *rest = parameter_name.removeprefix("elmo.").split(".")
    if module == "bilm":  # bilm.layers.0 and so on
        return f"layer_{int(rest[1]) + 1}"
    return module


def _make_readable(summary: TrainingSummary, settings: dict[str, Any]) -> None:
    """Turns the values of a summary into text for table cells, and adds settings to its hyper-parameters."""
    summary.hyperparameters = _readable(summary.hyperparameters | settings)
    summary.eval_results = _readable(summary.eval_results or {})
    summary.eval_lines = [_readable(row) for row in summary.eval_lines or ()]
    summary.dataset = ", ".join(as_list(summary.dataset))


def _rates(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> str:
    """The first learning rates of an optimizer: that of most numbers, then the others with their parameters' names."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    parameters: dict[float, list[torch.nn.Parameter]] = {}
    for group in optimizer.param_groups:
        rate = float(group.get("initial_lr", group["lr"]))  # a schedule changes `lr`
        parameters.setdefault(rate, []).extend(group["params"])
    main_rate = max(parameters, key=lambda rate: sum(parameter.numel() for parameter in parameters[rate]))
    cells = [f"{main_rate:.5g}"]
    for rate, members in parameters.items():
        if rate != main_rate:
            named = [names[parameter] for parameter in members if parameter in names]
            cells.append(f"{rate:.5g} for {', '.join(named)}")
    return "; ".join(cells)


def _optimizer_line(optimizer: torch.optim.Optimizer) -> str:
    """An optimizer's class and its numbers, such as `AdamW with betas=(0.9, 0.999)`; without the learning rates."""
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it in training
    settings = []
    for name in optimizer.defaults:
        values = list(dict.fromkeys(str(group[name]) for group in optimizer.param_groups))
        is_number = isinstance(optimizer.defaults[name], (int, float, tuple))
        is_switch = isinstance(optimizer.defaults[name], bool)
        if is_number and not is_switch and name != "lr":
            settings.append(f"{name}={' or '.join(values)}")
    return f"{type(optimizer).__name__} with {', '.join(settings)}"


def _readable(row: dict[str, Any]) -> dict[str, str]:
    """Values as text for table cells."""
    cells = {}
    for name, value in row.items():
        if isinstance(value, float):
            cells[name] = f"{value:.5g}"
        else:
            cells[name] = " ".join(str(value).split())
    return cells


def _scores(summary: TrainingSummary, task: str) -> list[EvalResult]:
    """The final scores as metadata, if the Hub dataset that they were measured on is known."""
    datasets = as_list(summary.dataset_tags)
    if not datasets:
        return []
    names = [*as_list(summary.dataset), *datasets]
    configurations = as_list(summary.dataset_args)
    results = []
    for name, value in (summary.eval_results or {}).items():
        if isinstance(value, (int, float)) and name != "Loss":
            result = EvalResult(
                task_type=task,
                dataset_type=datasets[0],
                dataset_name=names[0],
                dataset_config=configurations[0] if configurations else None,
                metric_type=name.lower().replace(" ", "_"),
                metric_name=name,
                metric_value=value,
            )
            results.append(result)
    return results

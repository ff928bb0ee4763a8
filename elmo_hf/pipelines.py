"""`elmo_hf.pipeline`: the pipeline of transformers, with the class that a model of this package needs.

`transformers.pipeline` finds that class only for a folder, with `trust_remote_code=True`. With a model object it would
use its own class, which for tokens reads each word's row of character ids as one id. transformers' `fill-mask` needs a
masked language model, so only this package has `fill-mask` for ELMo.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import transformers
from transformers import Pipeline
from transformers.pipelines import check_task

from .folder.loading import HUB_ARGUMENTS, load_complete, load_language_models, load_tokenizer, pop_arguments
from .heads import HEADS
from .language_model.cloze import ElmoFillMaskPipeline
from .model.modeling_elmo import ElmoPreTrainedModel

# The class of models for each Auto class of transformers, and the class of pipelines for each task.
MODELS = {head.auto_class: head.model_class for head in HEADS if head.has_pipeline}
PIPELINES: dict[str, type[Pipeline]] = {
    task: pipeline_class
    for model_class in MODELS.values()
    for task, (pipeline_class, _) in model_class.pipelines.items()
}
PIPELINES["fill-mask"] = ElmoFillMaskPipeline


def pipeline(task: str, model: Any, tokenizer: Any = None, **kwargs: Any) -> Pipeline:
    """Makes a pipeline, as `transformers.pipeline` does.

    Args:
        task: such as `"feature-extraction"`, `"text-classification"`, `"token-classification"`, `"ner"`, `"fill-mask"`.
        model: a model, or a folder, a Hub name or a short name, such as `"tiny"` or `"original"`.
        tokenizer: the model's; None loads it from the folder or the Hub.
        **kwargs: those of `transformers.pipeline`.

    Raises:
        KeyError: if there is no such task.
        ValueError: if ELMo has no model for the task, a folder cannot be loaded, or the model for `fill-mask` lacks its
            softmax over words.
    """
    name, targeted, _ = check_task(task)
    if isinstance(model, (str, Path)):
        hub = pop_arguments(kwargs, HUB_ARGUMENTS)
        if name == "fill-mask":
            model, model_tokenizer = load_language_models(model, **hub)
            if tokenizer is None:
                tokenizer = model_tokenizer
        else:
            model_class = _model_class(task, [auto_class.__name__ for auto_class in targeted["pt"]])
            loading = pop_arguments(kwargs, ("dtype", "device_map"))
            if tokenizer is None:
                tokenizer = load_tokenizer(model, **hub)
            model = load_complete(model, model_class, **hub, **loading, **kwargs.pop("model_kwargs", {}))
    kwargs.setdefault("pipeline_class", PIPELINES.get(name))
    return transformers.pipeline(task, model, tokenizer=tokenizer, **kwargs)


def _model_class(task: str, auto_classes: Sequence[str]) -> type[ElmoPreTrainedModel]:
    """The class of models for a task, given the names of its Auto classes; raises ValueError if there is none."""
    for auto_class in auto_classes:
        if auto_class in MODELS:
            return MODELS[auto_class]
    raise ValueError(f"ELMo has no pipeline for {task!r}; there are pipelines for {', '.join(PIPELINES)}.")

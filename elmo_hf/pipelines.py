"""`elmo_hf.pipeline`: the pipeline of transformers, with the class that a model of this package needs.

`transformers.pipeline` finds that class only for a folder, with `trust_remote_code=True`. With a model object it would
use its own class, which for tokens reads each word's row of character ids as one id. transformers' `fill-mask` needs a
masked language model, so only this package has `fill-mask` for ELMo.
"""

from pathlib import Path
from typing import Any

import transformers
from transformers import Pipeline
from transformers.pipelines import check_task

from .folder.loading import HUB_ARGUMENTS, load_complete, load_language_models, load_tokenizer
from .language_model.cloze import ElmoFillMaskPipeline
from .model.heads_elmo import ElmoForSequenceClassification, ElmoForTokenClassification
from .model.modeling_elmo import ElmoModel

# The class of models for each Auto class of transformers, and the class of pipelines for each task.
MODELS = {
    "AutoModel": ElmoModel,
    "AutoModelForSequenceClassification": ElmoForSequenceClassification,
    "AutoModelForTokenClassification": ElmoForTokenClassification,
}
PIPELINES = {
    task: pipeline_class
    for model_class in MODELS.values()
    for task, (pipeline_class, _) in model_class.pipelines.items()
} | {"fill-mask": ElmoFillMaskPipeline}


def pipeline(task: str, model: Any, tokenizer: Any = None, **kwargs: Any) -> Pipeline:
    """Makes a pipeline, as `transformers.pipeline` does.

    Args:
        task: such as `"feature-extraction"`, `"text-classification"`, `"token-classification"`, `"ner"`, `"fill-mask"`.
        model: a model, or a folder, a Hub name or `"tiny"`.
        tokenizer: the model's; None loads it from the folder or the Hub.
        **kwargs: those of `transformers.pipeline`.

    Raises:
        KeyError: if there is no such task.
        ValueError: if ELMo has no model for the task, a folder cannot be loaded, or the model for `fill-mask` lacks its
            softmax over words.
    """
    name, targeted, _ = check_task(task)
    if isinstance(model, (str, Path)):
        hub = {key: kwargs.pop(key) for key in HUB_ARGUMENTS if key in kwargs}
        if name == "fill-mask":
            model, found = load_language_models(model, **hub)
            tokenizer = tokenizer or found
        else:
            auto_classes = [each.__name__ for each in targeted["pt"]]
            model_class = next((MODELS[each] for each in auto_classes if each in MODELS), None)
            if model_class is None:
                raise ValueError(f"ELMo has no pipeline for {task!r}; there are pipelines for {', '.join(PIPELINES)}.")
            loading = {key: kwargs.pop(key) for key in ("dtype", "device_map") if key in kwargs}
            tokenizer = tokenizer or load_tokenizer(model, **hub)
            model = load_complete(model, model_class, **hub, **loading, **kwargs.pop("model_kwargs", {}))
    return transformers.pipeline(task, model, tokenizer=tokenizer, **({"pipeline_class": PIPELINES.get(name)} | kwargs))

"""`elmo_hf.pipeline`: the pipeline of transformers, with the class that a model of this package needs.

`transformers.pipeline` finds that class by itself only in a folder named with `trust_remote_code=True`. With a model
object, its own class for tokens would read each word's row of character ids as one id. `fill-mask` is a pipeline of
this package alone: transformers knows no masked language model that is an ELMo.
"""

from pathlib import Path
from typing import Any

import transformers
from transformers import Pipeline
from transformers.pipelines import check_task

from .language_model.fill_mask import ElmoFillMaskPipeline
from .loading import load_language_models
from .model.modeling_elmo import ElmoModel
from .model_names import check_name, model_folder
from .tasks.sequence_classification import ElmoForSequenceClassification
from .tasks.token_classification import ElmoForTokenClassification

CLASSES = {
    task: pipeline_class
    for model_class in (ElmoModel, ElmoForSequenceClassification, ElmoForTokenClassification)
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
        ValueError: if `model` is no possible name, or `fill-mask` finds no softmax over words.
    """
    task_class = CLASSES.get(check_task(task)[0])
    model = str(model) if isinstance(model, Path) else model
    if task_class is ElmoFillMaskPipeline:
        model, tokenizer = _language_models(model, tokenizer)
    if isinstance(model, str):
        check_name(model)
        model = str(model_folder(model))
    kwargs = {"pipeline_class": task_class} | kwargs
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, **kwargs)


def _language_models(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    """The two, loaded if they are names, with a softmax."""
    if isinstance(model, str):
        model, found = load_language_models(model)
        return model, found if tokenizer is None else tokenizer
    if not hasattr(model, "softmax"):
        raise ValueError(
            f"fill-mask needs the softmax of the language models, which {type(model).__name__} lacks: load the folder "
            "as ElmoForPreTraining, or give its name."
        )
    return model, tokenizer

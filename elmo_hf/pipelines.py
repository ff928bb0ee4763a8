"""`elmo_hf.pipeline`: the pipeline of transformers, with the class that a model of this package needs.

`transformers.pipeline` finds that class by itself only in a folder named with `trust_remote_code=True`. With a model
object, its own class for tokens would read each word's row of character ids as one id.
"""

from typing import Any

import transformers
from transformers import Pipeline
from transformers.pipelines import check_task

from .model.modeling_elmo import ElmoModel
from .model_names import check_name, model_folder
from .tasks.sequence_classification import ElmoForSequenceClassification
from .tasks.token_classification import ElmoForTokenClassification

CLASSES = {
    task: pipeline_class
    for model_class in (ElmoModel, ElmoForSequenceClassification, ElmoForTokenClassification)
    for task, (pipeline_class, _) in model_class.pipelines.items()
}


def pipeline(task: str, model: Any, tokenizer: Any = None, **kwargs: Any) -> Pipeline:
    """Makes a pipeline, as `transformers.pipeline` does.

    Args:
        task: such as `"feature-extraction"`, `"text-classification"`, `"token-classification"` or `"ner"`.
        model: a model, or a folder, a Hub name or `"tiny"`.
        tokenizer: the model's; None loads it from the folder or the Hub.
        **kwargs: those of `transformers.pipeline`.

    Raises:
        KeyError: if there is no such task.
        ValueError: if `model` is no possible name.
    """
    if isinstance(model, str):
        check_name(model)
        model = str(model_folder(model))
    kwargs = {"pipeline_class": CLASSES.get(check_task(task)[0])} | kwargs
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, **kwargs)

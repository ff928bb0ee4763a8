"""The files from which sentence-transformers learns that a text's vector is `pooler_output`.

    texts -> tokenizer -> forward -> `pooler_output`, under the name `sentence_embedding`

Without them it would average `last_hidden_state`, boundaries included. They hold no code: the library's own module
calls the model, and no pooling follows.
"""

import json
import os
from pathlib import Path

from transformers import PreTrainedModel

SENTENCE_FILES = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    ],
    "sentence_bert_config.json": {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}},
        "module_output_name": "sentence_embedding",
    },
    "config_sentence_transformers.json": {
        "model_type": "SentenceTransformer",
        "similarity_fn_name": "cosine",
        "prompts": {},
    },
}


def write_sentence_files(model: PreTrainedModel, folder: str | os.PathLike) -> None:
    """Writes the files beside a saved biLM, not beside a head or a language model.

    A file that is there stays: sentence-transformers writes its own, with prompts and further modules, when it saves.
    """
    if model.base_model is not model:
        return
    for name, content in SENTENCE_FILES.items():
        path = Path(folder) / name
        if not path.exists():
            path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

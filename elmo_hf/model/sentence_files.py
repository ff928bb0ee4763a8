"""What sentence-transformers reads beside a saved model: a text's vector is `pooler_output`; nothing pools after it.

Without these files it would average `last_hidden_state`, boundaries included.
"""

import json
from pathlib import Path
from typing import Any

READER = "sentence_transformers.base.modules.transformer.Transformer"
VECTOR = {"method": "forward", "method_output_name": "pooler_output"}
SENTENCE_FILES = {
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": READER}],
    "sentence_bert_config.json": {"modality_config": {"text": VECTOR}, "module_output_name": "sentence_embedding"},
    "config_sentence_transformers.json": {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine"},
}


def write_sentence_files(folder: Any) -> None:
    """Writes the files that are missing; one that exists may be the user's."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, content in SENTENCE_FILES.items():
        if not (Path(folder) / name).exists():
            (Path(folder) / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

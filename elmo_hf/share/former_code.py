"""Folders saved by earlier versions: what code they carry, and how they get the code of this version.

Before the code of a folder was generated (`hub_code.py`), a folder carried 37 files, one for each module.
"""

import json
import logging
import re
from importlib import metadata
from pathlib import Path

from packaging.version import Version

from ..files import new_file
from ..hub_code import code_files, generated_files, write_code
from ..model.configuration_elmo import AUTO_MAP
from ..model.sentence_files import write_sentence_files

logger = logging.getLogger(__name__)

# The files of the 37 that no folder has any more; the other three kept their names.
FORMER_FILES = frozenset(
    f"{name}.py"
    for name in (
        "bilm_scan code_point_codec column_products corpus crf initialisation lstmp padding pipeline_elmo pretraining "
        "question_answering reading_order scalar_mix scan_operator scan_path scoring sequence_classification softmax "
        "step_graphs streams task_encoder task_model text_rows token_classification token_encoder tokenizer_arguments "
        "triton_kernels triton_scan triton_steps vocabulary_files word_cache word_codec word_encoding word_splitter"
    ).split()
)


def update_code(folder: Path) -> bool:
    """Replaces code that an earlier version wrote into a folder; config.json then names the new files.

    Code of this version stays, because users may edit it. So does code that includes files no version wrote.

    Returns:
        whether the code was replaced.
    """
    if not _is_former(folder):
        return False
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = AUTO_MAP
    for pipeline in config.get("custom_pipelines", {}).values():
        pipeline["impl"] = f"modeling_elmo.{pipeline['impl'].split('.')[-1]}"
    with new_file(folder / "config.json") as partial:
        partial.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    write_code(folder)
    write_sentence_files(folder)
    logger.warning("%s held code of an earlier version of elmo-hf, which was replaced.", folder)
    return True


def _is_former(folder: Path) -> bool:
    found, files = code_files(folder), set(generated_files())
    if found != files:
        return bool(found & FORMER_FILES) and found <= FORMER_FILES | files
    ours = Version(metadata.version("elmo-hf"))
    versions = [re.match(r"# .* of elmo-hf (\S+),", (folder / name).read_text(encoding="utf-8")) for name in files]
    return any(version is not None and Version(version[1]) < ours for version in versions)

"""Targets that go on with interrupted work: the working folder of `embed`, and a pretraining run with its checkpoint.

What was changed must be refused or computed again: the result is that of an undisturbed run.
"""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
from language_models import words_file
from newcomer import SMALL
from pretraining_runs import FIELDS, VOCABULARY, make_sentences, write_text
from safetensors.numpy import load_file
from tiny_lm import tiny_lm, tiny_tokenizer_of

from elmo_hf import ElmoForPreTraining
from elmo_hf.embedding import shards
from elmo_hf.folder.loading import load_complete
from elmo_hf.model.bilm import BiLM

from .mutators import Files
from .outcomes import Wrong
from .target import INPUT, Target, read_files
from .texts import TEXT, call

CORPUS, OUT = f"{INPUT}/corpus.txt", f"{INPUT}/out.npz"
WINDOW_CHARACTERS = 30


def partial_embedding(work: Path) -> Target:
    """What `embed` left when it was killed at its third window."""
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, work)
    model.save_pretrained(work / "model")
    tokenizer.save_pretrained(work / "model")
    (work / INPUT).mkdir()
    (work / CORPUS).write_text(TEXT, encoding="utf-8")
    in_place(work, partial(run_embed, work / "model", "whole.npz"))
    killed = os.fork()
    if not killed:
        die_at_call(3)
        in_place(work, partial(run_embed, work / "model", OUT))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == 9
    files = read_files(work / INPUT)
    whole = dict(np.load(work / "whole.npz"))

    def run(changed: Files) -> None:
        run_embed(work / "model", OUT)
        with np.load(OUT) as found:
            if set(found) != set(whole) or any(is_other(found[name], whole[name]) for name in whole):
                raise Wrong("other vectors than those of an undisturbed run")

    return Target("partial", files, run, changeable=tuple(set(files) - {"corpus.txt"}), keeps_input=False)


def run_embed(model: Path, output: str) -> None:
    """Runs `embed` in short windows."""
    windows, shards.CHUNK_CHARACTERS = shards.CHUNK_CHARACTERS, WINDOW_CHARACTERS
    try:
        call("embed", model, CORPUS, "-o", output, "--split-into-words")
    finally:
        shards.CHUNK_CHARACTERS = windows


def die_at_call(number: int) -> None:
    """Ends this process at a call of the biLM."""
    forward, calls = BiLM.forward, []

    def dying(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        if len(calls) == number:
            os._exit(9)
        return forward(*arguments, **options)  # type: ignore[arg-type]

    BiLM.forward = dying  # type: ignore[method-assign,assignment]


def in_place(folder: Path, function: partial) -> None:
    """Calls a function in another folder."""
    old = os.getcwd()
    os.chdir(folder)
    try:
        function()
    finally:
        os.chdir(old)


def pretraining(work: Path) -> Target:
    """A run of four steps that was killed after its checkpoints at the second and the last."""
    write_text(work / "corpus.txt", make_sentences(20))
    write_text(work / "held-out.txt", make_sentences(4, seed=2))
    (work / "config.json").write_text(json.dumps(FIELDS))
    words_file(work, VOCABULARY, "words.txt")
    (work / INPUT).mkdir()
    pretrain(work, work / INPUT / "lm")
    weights = weights_of(work / INPUT / "lm")
    for path in (work / INPUT / "lm").iterdir():
        if path.name not in ("run.json", "checkpoint-2", "checkpoint-4"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    files = read_files(work / INPUT)

    def run(changed: Files) -> None:
        pretrain(work, Path(INPUT, "lm"))
        load_complete(f"{INPUT}/lm", ElmoForPreTraining)
        json.loads(Path(INPUT, "lm", "log.json").read_text())
        found = weights_of(Path(INPUT, "lm"))
        if set(found) != set(weights) or any(map(is_other, found.values(), weights.values())):
            raise Wrong("another model than that of an undisturbed run")

    changeable = tuple(name for name in files if not name.endswith((".py", ".md")))
    return Target("pretrain", files, run, changeable=changeable, keeps_input=False)


def weights_of(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor of a saved folder, by its sorted names."""
    tensors: dict[str, np.ndarray] = {}
    for path in folder.glob("*.safetensors"):
        tensors |= load_file(path)
    return dict(sorted(tensors.items()))


def is_other(array: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays differ."""
    return not np.array_equal(array, other)


def pretrain(work: Path, output: Path) -> None:
    """Runs `pretrain`."""
    files = ("--vocabulary", work / "words.txt", "--config", work / "config.json", "--held-out", work / "held-out.txt")
    steps = ("--max-steps", 4, "--checkpoint-steps", 2, "--logging-steps", 1)
    call("pretrain", work / "corpus.txt", "-o", output, *files, *steps, *SMALL)


TARGETS = {"partial": partial_embedding, "pretrain": pretraining}

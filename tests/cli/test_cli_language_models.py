"""The commands of language models: a newcomer's whole run, every softmax, and errors in plain words."""

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import run_python
from commands import assert_fails, read_hdf5, run
from language_models import state_of, words_file
from newcomer import pretrain
from pretraining_runs import FIELDS, VOCABULARY, write_text
from typer.testing import Result

from elmo_hf import ElmoTokenizer
from elmo_hf.hub_code import TABLE
from elmo_hf.training.run import new_language_model


def save_word_model(folder: Path, vocabulary: Path) -> None:
    model, tokenizer = new_language_model(vocabulary, token_encoder="word_embedding", projection_size=7, cell_size=8)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def perplexities(output: str, state: str) -> list[float]:
    """Forward, backward and mean as a command printed them."""
    (line,) = re.findall(rf"^perplexity +{state} .*$", output, re.MULTILINE)
    return [float(number) for number in re.findall(r"(?:forward|backward|mean) +([\d.]+)", line)]


def test_vocab_writes_words_by_frequency_and_says_what_they_cover(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", [["b", "a", "b"], [], ["c", "b", "a"]])
    write_text(tmp_path / "b.txt", [["b", "d", "<UNK>", "e"]])
    result = run("vocab", tmp_path / "*.txt", "-o", tmp_path / "words", "--size", 5)
    assert result.exit_code == 0
    assert (tmp_path / "words").read_text() == "<S>\n</S>\n<UNK>\nb\na\n"
    assert result.stdout == (
        f"Wrote 5 words to {tmp_path / 'words'}: 60.00% of the corpus's 10 words (6 distinct) are among them.\n"
    )
    (tmp_path / "words").unlink()
    result = run("vocab", tmp_path / "a.txt", tmp_path / "b.txt", "-o", tmp_path / "words", "--min-count", 2)
    assert result.exit_code == 0
    assert (tmp_path / "words").read_text() == "<S>\n</S>\n<UNK>\nb\na\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", "words"]


@pytest.mark.parametrize(("name", "value"), [("alphabet", "code_points"), ("num_input_words", 5)])
def test_a_new_model_reads_what_its_tokenizer_makes(name: str, value: object, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("\ufeff<S>\n</S>\n<UNK>\nferry\n", encoding="utf-8")
    sizes = {"projection_size": 7, "cell_size": 8}
    with pytest.raises(ValueError, match=f"a new model cannot have `{name}`"):
        new_language_model(tmp_path / "words", **sizes, **{name: value})
    wrong = {"vocab_size": 9, "bos_token_id": 3, "eos_token_id": 4, "num_softmax_words": 3}
    model, tokenizer = new_language_model(tmp_path / "words", **sizes, **wrong)
    assert (model.config.vocab_size, model.config.num_softmax_words) == (262, 4)
    inputs = tokenizer(["a b"], return_tensors="pt")["input_ids"]
    assert model.elmo.boundaries(inputs).tolist() == [[True, False, False, True]]


def test_vocab_splits_raw_text_when_asked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("It isn't.\n")
    assert run("vocab", tmp_path / "a.txt", "-o", tmp_path / "words", "--words", "ptb").exit_code == 0
    assert (tmp_path / "words").read_text().split()[3:] == [".", "It", "is", "n't"]


def test_vocab_says_what_is_wrong(work: Path) -> None:
    vocab = ("vocab", work / "corpus.txt", "-o", work / "w")
    assert_fails(run(*vocab, "--size", 3), 2, "'--size'")
    assert_fails(run(*vocab, "--min-count", 99), 1, "no word is left for the vocabulary: 18 distinct words")
    assert not (work / "w").exists()


def test_pretrain_writes_a_whole_folder(pretrained: tuple[Path, Result]) -> None:
    folder, result = pretrained
    names = {path.name for path in folder.iterdir()}
    assert {"run.json", "checkpoint-20", "runs", "log.json", "curve.png"} < names
    assert {"config.json", "words.txt", "tokenizer_config.json", *(f"{name}.py" for name in TABLE)} < names
    assert len([name for name in names if name.startswith("checkpoint-")]) == 2
    assert [name for name in names if name.endswith((".bin", ".pt", ".pth", ".partial"))] == []
    assert any(path.stat().st_size > 0 for path in (folder / "runs").rglob("events.out.tfevents.*"))
    assert (folder / "curve.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "20/20" in result.stderr
    assert f"Wrote {folder}.\n" in result.stdout
    assert re.search(r"^training text: 40 sentences, [\d,]+ words, \d+\.\d\d% unknown\.$", result.stdout, re.MULTILINE)
    assert re.search(r"^held-out text: 9 sentences, [\d,]+ words, \d+\.\d\d% unknown\.$", result.stdout, re.MULTILINE)


def test_the_log_has_losses_and_perplexities_by_step(pretrained: tuple[Path, Result]) -> None:
    log = json.loads((pretrained[0] / "log.json").read_text())
    assert [entry["step"] for entry in log if "forward_loss" in entry] == [4, 8, 12, 16, 20]
    assert [entry["step"] for entry in log if "eval_carried_backward_perplexity" in entry] == [8, 16, 20]


@pytest.mark.parametrize(
    ("options", "kind", "rates"),
    [
        ((), torch.optim.Adagrad, [0.2, 0.2, 0.2]),
        (("--optimizer", "adamw"), torch.optim.AdamW, [0.002, 0.002, 0.002]),
        (("--optimizer", "adamw", "--schedule", "linear"), torch.optim.AdamW, [0.002, 0.002 * 2 / 3, 0.002 / 3]),
        (("--schedule", "linear", "--learning-rate", 0.6), torch.optim.Adagrad, [0.6, 0.4, 0.2]),
        (("--schedule", "linear", "--warmup-steps", 2), torch.optim.Adagrad, [0, 0.1, 0.2]),
        (("--warmup-steps", 2), torch.optim.Adagrad, [0, 0.1, 0.2]),
    ],
)
def test_pretrain_takes_the_optimiser_and_its_schedule(
    options: tuple[object, ...],
    kind: type[torch.optim.Optimizer],
    rates: list[float],
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = []
    step = kind.step

    def record(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        used.append(optimizer.param_groups[0]["lr"])
        return step(optimizer, *args, **kwargs)

    monkeypatch.setattr(kind, "step", record)
    files = ("--vocabulary", work / "words.txt", "--config", work / "config.json")
    assert pretrain(work, tmp_path / "lm", *files, "--max-steps", 3, *options).exit_code == 0
    assert used == pytest.approx(rates)


def test_pretrain_ends_with_the_perplexities_of_the_model_that_it_wrote(
    pretrained: tuple[Path, Result], work: Path
) -> None:
    folder, result = pretrained
    log = json.loads((folder / "log.json").read_text())
    best = min((entry for entry in log if "eval_perplexity" in entry), key=lambda entry: entry["eval_perplexity"])
    scored = run("score", folder, work / "held-out.txt")
    assert scored.exit_code == 0, scored.output
    for state, prefix in (("from zero state", "eval_"), ("state carried", "eval_carried_")):
        printed = perplexities(result.stdout, state)
        names = ("forward_perplexity", "backward_perplexity", "perplexity")
        assert printed == pytest.approx([best[prefix + name] for name in names], abs=0.006)
        assert perplexities(scored.stdout, state) == printed


def test_a_pretrained_folder_loads_where_this_package_is_not_imported(
    pretrained: tuple[Path, Result], tmp_path: Path
) -> None:
    code = """
import sys
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
inputs = tokenizer(["a bb ccc"], return_tensors="pt")
biLM = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
lm = AutoModelForPreTraining.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
output = lm(**inputs, output_logits=True)
print(tuple(biLM(**inputs).last_hidden_state.shape), tuple(output.backward_logits.shape), "elmo_hf" in sys.modules)
"""
    printed = run_python(code, tmp_path, pretrained[0])
    assert printed == f"(1, 5, 14) (1, 5, {len(VOCABULARY)}) False\n"


def test_a_pretrained_folder_embeds(pretrained: tuple[Path, Result], work: Path, tmp_path: Path) -> None:
    result = run("embed", pretrained[0], work / "held-out.txt", "-o", tmp_path / "v.hdf5", "--split-into-words")
    assert result.exit_code == 0, result.output
    assert [vectors.shape for vectors in read_hdf5(tmp_path / "v.hdf5")][-3:] == [(3, 0, 14), (3, 4, 14), (3, 0, 14)]


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, ("--softmax", "sampled", "--samples", 5)),
        ({"num_hidden_layers": 1, "use_skip_connections": False, "cell_size": 7}, ("--accumulate", 2)),
        ({}, ("--bf16",)),
        ({}, ("--epochs", 0.5, "--max-steps", -1, "--reset-probability", 1)),
    ],
    ids=str,
)
def test_pretrain_makes_every_kind_of_model(
    fields: dict[str, Any], options: tuple[object, ...], work: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(FIELDS | fields))
    vocabulary = ("--vocabulary", work / "words.txt", "--config", tmp_path / "config.json")
    result = pretrain(work, tmp_path / "lm", *vocabulary, *options)
    assert result.exit_code == 0, result.output
    scored = run("score", tmp_path / "lm", work / "held-out.txt")
    assert scored.exit_code == 0, scored.output
    # Words drawn at random would have as many; a broken model has many more.
    assert 1 < perplexities(scored.stdout, "from zero state")[2] < 3 * len(VOCABULARY)


@pytest.mark.parametrize("is_shared", [False, True])
def test_pretrain_makes_a_word_model(is_shared: bool, work: Path, tmp_path: Path) -> None:
    fields = {"token_encoder": "word_embedding", "projection_size": 7, "cell_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(fields | {"share_embedding_softmax": is_shared}))
    result = pretrain(work, tmp_path / "lm", "--vocabulary", work / "words.txt", "--config", tmp_path / "config.json")
    assert result.exit_code == 0, result.output
    state = state_of(tmp_path / "lm")
    assert state["elmo.token_encoder.embedding.weight"].shape == (len(VOCABULARY) + 1, 7)
    assert ("softmax.weight" in state) != is_shared
    assert ElmoTokenizer.from_pretrained(tmp_path / "lm").predicted_words == VOCABULARY
    assert run("score", tmp_path / "lm", work / "held-out.txt").exit_code == 0


@pytest.mark.parametrize(("words", "splitter"), [((), "whitespace"), (("--words", "ptb"), "ptb")])
@pytest.mark.parametrize("token_encoder", ["char_cnn", "word_embedding"])
def test_raw_text_is_split_as_in_training_ever_after(
    words: tuple[str, ...], splitter: str, token_encoder: str, tmp_path: Path
) -> None:
    sentence, text, model = "Il est aujourd'hui là, n'est-ce pas?", tmp_path / "raw.txt", tmp_path / "lm"
    text.write_text(f"{sentence}\n" * 9, encoding="utf-8")
    sizes = {"projection_size": 7, "cell_size": 8} if token_encoder == "word_embedding" else FIELDS
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"token_encoder": token_encoder}))
    assert run("vocab", text, "-o", tmp_path / "words.txt", *words).exit_code == 0
    options = ("--vocabulary", tmp_path / "words.txt", "--config", tmp_path / "config.json", "--max-steps", 1)
    result = run("pretrain", text, "-o", model, *options, *words, "--rows", 1, "--unroll-steps", 2)
    assert result.exit_code == 0, result.output
    (trained,) = re.findall(r"^training text: (.*)$", result.stdout, re.MULTILINE)
    assert trained.endswith(" 0.00% unknown.")
    tokenizer = ElmoTokenizer.from_pretrained(model)
    assert tokenizer.word_splitter == splitter
    scored = run("score", model, text, "--per-word", tmp_path / "t.tsv")
    assert scored.stdout.splitlines()[0] == trained
    with (tmp_path / "t.tsv").open(encoding="utf-8", newline="") as file:
        read = [row["word"] for row in csv.DictReader(file, delimiter="\t") if row["sentence"] == "0"]
    assert read[1:-1] == tokenizer.tokenize(sentence)
    assert ("aujourd'hui" in read) == (splitter == "whitespace")
    assert run("embed", model, text, "-o", tmp_path / "v.hdf5").exit_code == 0
    assert read_hdf5(tmp_path / "v.hdf5")[0].shape[1] == len(read) - 2
    assert f'(`word_splitter="{splitter}"`)' in (model / "README.md").read_text(encoding="utf-8")


def test_pretrain_starts_from_the_seed(work: Path, tmp_path: Path) -> None:
    options = ("--vocabulary", work / "words.txt", "--config", work / "config.json")
    for name, seed in (("a", 4), ("b", 4), ("c", 5)):
        assert pretrain(work, tmp_path / name, *options, "--seed", seed).exit_code == 0
    states = [state_of(tmp_path / name)["softmax.weight"] for name in ("a", "b", "c")]
    assert np.array_equal(states[0], states[1])
    assert not np.array_equal(states[0], states[2])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--vocabulary", "no-unk.txt"), "<UNK>"),
        (("--vocabulary", "latin.txt"), "latin.txt"),
        (("--vocabulary", "words.txt", "--config", "nested.json"), "nested.json"),
        (("--vocabulary", "words.txt", "--config", "list.json"), "list.json"),
        (("--vocabulary", "words.txt", "--config", "typo.json"), "`cell_sise`, `layers`"),
        (("--vocabulary", "words.txt", "--config", "wrong.json"), "cell_size"),
        (("--vocabulary", "words.txt", "--softmax", "sampled"), "`num_softmax_samples`"),
        (("--model", "word-model", "--vocabulary", "words.txt"), "reads words by its own vocabulary"),
    ],
    ids=str,
)
def test_pretrain_says_what_is_wrong_and_writes_nothing(
    options: tuple[str, ...], named: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    words_file(work, ["<S>", "</S>", "a"], "no-unk.txt")
    (work / "latin.txt").write_bytes("<S>\n</S>\n<UNK>\né\n".encode("latin-1"))
    (work / "list.json").write_text("[1]")
    (work / "nested.json").write_text("[" * 100_000)
    (work / "typo.json").write_text('{"cell_sise": 3, "layers": 2, "cell_size": 4}')
    (work / "wrong.json").write_text('{"cell_size": 0}')
    save_word_model(work / "word-model", work / "words.txt")
    assert_fails(pretrain(Path(), Path("out"), *options), 1, named)
    assert not (work / "out").exists()


@pytest.mark.parametrize(
    ("corpus", "held_out", "message"),
    [
        (["a b"], ["a"], "3 predictions, fewer than the 3 x 5"),
        ([], ["a"], "0 predictions, fewer than the 3 x 5"),
        (["a b"] * 9, ["", " "], "the held-out text has no sentences."),
    ],
)
def test_a_text_that_is_too_small_is_refused_and_blocks_no_other_try(
    corpus: list[str], held_out: list[str], message: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.txt").write_text("\n".join(corpus))
    Path("other.txt").write_text("\n".join(held_out))
    options = ("--vocabulary", work / "words.txt", "--config", work / "config.json", "--max-steps", 1, "-o", "out")
    refused = run("pretrain", "small.txt", "--held-out", "other.txt", *options, "--rows", 3, "--unroll-steps", 5)
    assert_fails(refused, 1, message)
    Path("small.txt").write_text("a b")
    result = run("pretrain", "small.txt", *options, "--rows", 1, "--unroll-steps", 2)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("verb", "source", "package"),
    [
        ("vocab", "org/corpus", "datasets"),
        ("pretrain", "org/corpus", "datasets"),
        *(("pretrain", "corpus.txt", name) for name in ("accelerate", "matplotlib", "tensorboard")),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(
    verb: str, source: str, package: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    monkeypatch.setitem(sys.modules, package, None)
    options = ("--vocabulary", "words.txt") if verb == "pretrain" else ()
    result = run(verb, source, "-o", tmp_path / "out", *options)
    hint = f"pip install {package}, or in a clone of elmo-hf the whole extra: pip install '.[train]'"
    assert_fails(result, 1, f"this needs {package}, not installed here: {hint}")
    assert list(tmp_path.iterdir()) == []

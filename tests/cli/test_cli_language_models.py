"""The commands of language models: a newcomer's whole run, every softmax, `--model`, and errors in plain words."""

import csv
import json
import math
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch

from elmo_hf import ElmoForPreTraining, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.readers.hdf5_layout import fields_for_training
from elmo_hf.folder.saved_config import read_config
from elmo_hf.model.configuration_elmo import CODE_FILES
from elmo_hf.training.run import new_language_model
from tests.helpers.checkpoints import EDGES, TINY_LM, bits
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.language_models import state_of, words_file
from tests.helpers.pretraining_runs import FIELDS, VOCABULARY, files_of, pretrain, write_files, write_text
from tests.helpers.saved_folders import assert_same_without_the_package

ONE_STEP = ("--max-steps", 1, "--rows", 1, "--unroll-steps", 2)


def perplexities(output: str, state: str) -> list[float]:
    """Forward, backward and mean as a command printed them."""
    (line,) = re.findall(rf"^perplexity +{state} .*$", output, re.MULTILINE)
    return [float(number) for number in re.findall(r"(?:forward|backward|mean) +([\d.]+)", line)]


def test_vocab_writes_words_by_frequency_and_says_what_they_cover(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", [["b", "a", "b"], [], ["c", "b", "a"]])
    write_text(tmp_path / "b.txt", [["b", "d", "<UNK>", "e"]])
    printed = output_of("vocab", tmp_path / "*.txt", "-o", tmp_path / "words", "--size", 5)
    assert (tmp_path / "words").read_text() == "<S>\n</S>\n<UNK>\nb\na\n"
    assert printed == (
        f"Wrote 5 words to {tmp_path / 'words'}: 60.00% of the corpus's 10 words (6 distinct) are among them.\n"
    )


WORD_INPUT = {"token_encoder": "word_embedding", "alphabet": "code_points"}


@pytest.mark.parametrize(("name", "fields"), [("alphabet", WORD_INPUT), ("num_input_words", {"num_input_words": 5})])
def test_a_new_model_reads_what_its_tokenizer_makes(name: str, fields: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "words").write_text("\ufeff<S>\n</S>\n<UNK>\nferry\n", encoding="utf-8")
    sizes = {"projection_size": 7, "cell_size": 8}
    with pytest.raises(ValueError, match=f"a new model cannot have `{name}`"):
        new_language_model(tmp_path / "words", **sizes, **fields)
    wrong = {"vocab_size": 9, "bos_token_id": 3, "eos_token_id": 4, "num_softmax_words": 3}
    model, tokenizer = new_language_model(tmp_path / "words", **sizes, **wrong)
    assert (model.config.vocab_size, model.config.num_softmax_words) == (262, 4)
    inputs = tokenizer(["a b"], return_tensors="pt")["input_ids"]
    assert model.elmo.boundaries(inputs).tolist() == [[True, False, False, True]]


def test_options_of_bilm_tf_give_the_model_that_it_trains_and_a_note_on_its_other_settings(
    tiny_lm_folder: Path, work: Path, tmp_path: Path
) -> None:
    options = TINY_LM / "options.json"
    given = ("--vocabulary", TINY_LM / "vocab.txt", "--config", options)
    result = run("pretrain", work / "corpus.txt", "-o", tmp_path / "lm", *given, *ONE_STEP)
    assert result.exit_code == 0, result.output
    note = f"Note: the model and its softmax are those of {options}, but these training settings differ: "
    assert f"{note}batch_size is 3, --rows 1; unroll_steps is 5, --unroll-steps 2.\n" in result.stderr
    config, expected = (read_config(folder)[0].to_diff_dict() for folder in (tmp_path / "lm", tiny_lm_folder))
    of_the_conversion = {"task_specific_params", "dtype", "architectures", "transformers_version"}
    names = config.keys() | expected.keys()
    assert {name for name in names if config.get(name) != expected.get(name)} <= of_the_conversion


@pytest.mark.parametrize("name", ["bi_char_1layer", "bi_word_2", "uni_char_2"])
def test_options_of_a_training_have_bilm_tfs_defaults_and_those_for_inference_ours(name: str) -> None:
    options = json.loads((EDGES / name / "options.json").read_text(encoding="utf-8"))
    fields = fields_for_training(options, "options.json")
    assert fields["token_encoder"] == ("word_embedding" if name == "bi_word_2" else "char_cnn")
    assert fields["bidirectional"] == (name != "uni_char_2")
    assert (fields["softmax"], fields["num_softmax_samples"], fields["lm_dropout"]) == ("sampled", 16, 0.1)
    full = fields_for_training(options | {"sample_softmax": False}, "options.json")
    assert full == fields | {"softmax": "full"}
    del options["bidirectional"]
    assert fields_for_training(options, "options.json") == fields | {"bidirectional": False}
    inference = {key: options[key] for key in ("lstm", "char_cnn") if key in options}
    of_training = {"bidirectional", "softmax", "num_softmax_samples", "lm_dropout"}
    assert fields.keys() - of_training == fields_for_training(inference, "options.json").keys()


@pytest.mark.same_rounding
def test_a_new_model_reads_the_letters_of_its_vocabulary(tmp_path: Path) -> None:
    words, model = ["राष्ट्रीय", "भाषा", "язык", "мы", "идём", "a"], tmp_path / "model"  # without ऋ and ъ
    sentences = [["мы", "ऋषि", "भाषा"], ["объём", "राष्ट्रीयकरण", "язык", "a"], ["идём", "राष्ट्रीय"]]
    text = write_text(tmp_path / "corpus.txt", sentences * 12)
    words_file(tmp_path, [*VOCABULARY[:3], *words], "words.txt")
    (tmp_path / "config.json").write_text(json.dumps(FIELDS | {"vocab_size": 9, "bos_token_id": 8}))
    options = (*files_of(tmp_path), "--alphabet", "code_points", "--checkpoint-steps", 1)
    pretrain(tmp_path, model, *options)
    output_of("score", model, text)
    output_of("embed", model, text, "-o", tmp_path / "v.npz")
    tokenizer, bilm = ElmoTokenizer.from_pretrained(model), ElmoModel.from_pretrained(model)
    letters = sorted(set("".join(words)))
    for word in [*words, "ऋषि", "объём", "राष्ट्रीयकरण"]:
        ids = [7 + letters.index(letter) if letter in letters else 3 for letter in word[:9]]
        assert tokenizer.convert_tokens_to_ids([word]) == [[5, *ids, 6, *[4] * (9 - len(ids))]]
    assert (bilm.config.vocab_size, bilm.config.bos_token_id, bilm.config.eos_token_id) == (7 + len(letters), 1, 2)
    shutil.copytree(model / "checkpoint-1", tmp_path / "again" / "checkpoint-1")
    shutil.copy(model / "run.json", tmp_path / "again")
    pretrain(tmp_path, tmp_path / "again", *options)
    assert bits(state_of(tmp_path / "again")) == bits(state_of(model))
    for part in (bilm, tokenizer):
        part.save_pretrained(tmp_path / "bilm" / "model")
    (tmp_path / "bilm" / "sentences.json").write_text(json.dumps({"call1": sentences}))
    assert_same_without_the_package(tmp_path / "bilm" / "model")


def test_pretrain_writes_a_whole_folder_and_the_perplexities_of_its_model(
    pretrained: tuple[Path, str], work: Path
) -> None:
    folder, printed = pretrained
    names = {path.name for path in folder.iterdir()}
    assert {"run.json", "checkpoint-20", "runs", "log.json", "curve.png"} < names
    assert {"config.json", "words.txt", "tokenizer_config.json", *CODE_FILES} < names
    assert len([name for name in names if name.startswith("checkpoint-")]) == 2
    assert [name for name in names if name.endswith((".bin", ".pt", ".pth", ".partial"))] == []
    assert any(path.stat().st_size > 0 for path in (folder / "runs").rglob("events.out.tfevents.*"))
    counted = r"^held-out text: 9 sentences \(2 of them blank\), [\d,]+ words, \d+\.\d\d% unknown\.$"
    assert re.search(counted, printed, re.MULTILINE)
    log = json.loads((folder / "log.json").read_text())
    assert [entry["step"] for entry in log if "forward_loss" in entry] == [4, 8, 12, 16, 20]
    assert [entry["step"] for entry in log if "eval_carried_backward_perplexity" in entry] == [8, 16, 20]
    best = min((entry for entry in log if "eval_perplexity" in entry), key=lambda entry: entry["eval_perplexity"])
    assert best["step"] == 8  # of 20, or the last perplexities would pass for the best
    scored = output_of("score", folder, work / "unexpected.txt")
    for state, prefix in (("from zero state", "eval_"), ("state carried", "eval_carried_")):
        found = perplexities(printed, state)
        parts = ("forward_perplexity", "backward_perplexity", "perplexity")
        assert found == pytest.approx([best[prefix + part] for part in parts], abs=0.006)
        assert perplexities(scored, state) == found
    assert read_config(folder)[1] == {}  # no field that nothing reads
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"| Perplexity | {best['eval_perplexity']:.5g} |" in card.splitlines()


# Options of a run of three steps, its learning rates, and what its record has.
RUNS: list[tuple[str, list[float], dict[str, object]]] = [
    ("", [0.2, 0.2, 0.2], {"optim": "OptimizerNames.ADAGRAD", "bf16": False, "config.softmax": "full"}),
    (
        "--optimizer adamw --schedule linear",
        [0.002, 0.002 * 2 / 3, 0.002 / 3],
        {"optim": "OptimizerNames.ADAMW_TORCH_FUSED"},
    ),
    ("--schedule linear --learning-rate 0.6", [0.6, 0.4, 0.2], {}),
    ("--schedule linear --warmup-steps 2", [0, 0.1, 0.2], {}),
    ("--warmup-steps 2", [0, 0.1, 0.2], {}),
    (
        "--accumulate 2 --bf16 --reset-probability 0.75 --frozen-steps 1 --samples 5",
        [0.2, 0.2, 0.2],
        {"per_device_train_batch_size": 3, "unroll_steps": 5, "seed": 4, "max_steps": 3, "bf16": True}
        | {"gradient_accumulation_steps": 2, "reset_probability": 0.75, "frozen_steps": 1}
        | {"config.softmax": "sampled", "config.num_softmax_samples": 5, "config.cell_size": 9},
    ),
]


@pytest.mark.parametrize(("options", "rates", "recorded"), RUNS, ids=[options for options, _, _ in RUNS])
def test_pretrain_does_what_its_options_say(
    options: str, rates: list[float], recorded: dict[str, object], work: Path, tmp_path: Path
) -> None:
    steps = ("--max-steps", 3, "--logging-steps", 1)
    pretrain(work, tmp_path / "lm", *files_of(work), *steps, *options.split())
    log = json.loads((tmp_path / "lm" / "log.json").read_text())
    assert [entry["learning_rate"] for entry in log if "learning_rate" in entry] == pytest.approx(rates)
    started = json.loads((tmp_path / "lm" / "run.json").read_text())
    assert {name: started[name] for name in recorded} == {name: str(value) for name, value in recorded.items()}
    scored = output_of("score", tmp_path / "lm", work / "held-out.txt")
    # Words drawn at random would have as many; a broken model has many more.
    assert 1 < perplexities(scored, "from zero state")[2] < 3 * len(VOCABULARY)


@pytest.mark.parametrize(
    ("words", "splitter", "token_encoder"),
    [((), "whitespace", "word_embedding"), (("--words", "ptb"), "ptb", "char_cnn")],
)
def test_raw_text_is_split_as_in_training_ever_after(
    words: tuple[str, ...], splitter: str, token_encoder: str, tmp_path: Path
) -> None:
    sentence, table, model = "Il est aujourd'hui là, n'est-ce pas?", tmp_path / "raw.csv", tmp_path / "lm"
    table.write_text("text,said\n" + f'Non.,"{sentence}"\n' * 9, encoding="utf-8")
    text = (table, "--column", "said")
    sizes = {"projection_size": 7, "cell_size": 8} if token_encoder == "word_embedding" else FIELDS
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"token_encoder": token_encoder}))
    output_of("vocab", *text, "-o", tmp_path / "words.txt", *words)
    printed = output_of("pretrain", *text, "-o", model, *files_of(tmp_path), *words, *ONE_STEP)
    (trained,) = re.findall(r"^training text: (.*)$", printed, re.MULTILINE)
    assert trained.endswith(" 0.00% unknown.")
    tokenizer = ElmoTokenizer.from_pretrained(model)
    assert tokenizer.word_splitter == splitter
    if token_encoder == "word_embedding":
        assert state_of(model)["elmo.token_encoder.embedding.weight"].shape == (tokenizer.num_word_classes + 1, 7)
    scored = output_of("score", model, *text, "--per-word", tmp_path / "t.tsv")
    assert scored.splitlines()[0] == trained
    with (tmp_path / "t.tsv").open(encoding="utf-8", newline="") as file:
        read = [row["word"] for row in csv.DictReader(file, delimiter="\t") if row["sentence"] == "0"]
    assert read[1:-1] == tokenizer.tokenize(sentence)
    assert ("aujourd'hui" in read) == (splitter == "whitespace")
    assert f'(`word_splitter="{splitter}"`)' in (model / "README.md").read_text(encoding="utf-8")


def test_a_missing_package_is_named_with_what_installs_it(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("accelerate", "matplotlib", "tensorboard"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            result = run("pretrain", work / "corpus.txt", "-o", tmp_path / "out", "--model", "tiny")
        hint = f"pip install {package}, or in a clone of elmo-hf the whole extra: pip install '.[train]'"
        assert_fails(result, 1, f"this needs {package}, not installed here: {hint}")


def test_a_text_of_another_encoding_is_named_and_read_when_its_encoding_is_given(
    pretrained: tuple[Path, str], work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.txt").write_bytes("fine\nÜbung\n".encode("latin-1") * 9)
    message = "Error: latin.txt, line 2: not UTF-8 (byte 0xdc). It looks like cp1252: give `--encoding cp1252`"
    options = (*files_of(work), *ONE_STEP)
    for command in (
        ("vocab", "latin.txt", "-o", "words"),
        ("score", pretrained[0], "latin.txt"),
        ("embed", pretrained[0], "latin.txt", "-o", "v.npz"),
        ("vectors", pretrained[0], "latin.txt", "-o", "v.txt"),
        ("pretrain", "latin.txt", "-o", "lm", *options),
        ("pretrain", work / "corpus.txt", "--held-out", "latin.txt", "-o", "lm2", *options),
    ):
        before = [*tmp_path.iterdir()]
        assert_fails(run(*command), 1, message)
        assert [*tmp_path.iterdir()] == before
        output_of(*command, "--encoding", "cp1252")
    assert Path("words").read_text(encoding="utf-8").split()[3:] == ["fine", "Übung"]
    lines = Path("v.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in lines] == ["2", "fine", "Übung"]


@pytest.mark.parametrize("carries_state", [False, True])
def test_score_writes_the_surprisal_of_each_word(
    carries_state: bool, pretrained: tuple[Path, str], work: Path, tmp_path: Path
) -> None:
    options = ("--carry-state", "--rows", 2) if carries_state else ()
    result = run("score", pretrained[0], work / "held-out.txt", "--per-word", tmp_path / "t.parquet", *options)
    assert f"Wrote {tmp_path / 't.parquet'}.\n" in result.stdout
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pydict()
    sentences = [line.split() for line in (work / "held-out.txt").read_text().splitlines() if line]
    assert table["word"] == [word for words in sentences for word in ("<S>", *words, "</S>")]
    model = ElmoForPreTraining.from_pretrained(pretrained[0]).eval()
    tokenizer = ElmoTokenizer.from_pretrained(pretrained[0])
    scores = model.score(sentences, tokenizer, carries_state=carries_state, num_rows=2)
    for name, log_probs in (("forward_bits", scores.forward), ("backward_bits", scores.backward)):
        bits = [bit for bit in table[name] if bit is not None]
        np.testing.assert_allclose(bits, -log_probs[~np.isnan(log_probs)] / math.log(2), rtol=1e-5)
    # The bar ends where it should.
    count, total = re.findall(r"(\d+)/(\d+) \[", result.stderr)[-1]
    scored = [int(number.replace(",", "")) for number in re.findall(r"([\d,]+) of [\d,]+ predictions", result.stdout)]
    assert int(count) == int(total) == sum(scored)


def test_a_converted_bilm_learns_a_softmax_while_it_is_frozen(
    tiny_folder: Path, work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = state_of(tiny_folder)
    compared = [name for name in before if "scalar_mixes" not in name]
    assert len(compared) > 10
    for name, steps in (("frozen", 2), ("thawed", 1)):
        options = ("--model", tiny_folder, "--vocabulary", work / "words.txt", "--frozen-steps", steps)
        pretrain(work, tmp_path / name, *options)
        note = (
            "Note: The run has 2 steps, and the first 2 are frozen, so only the softmax learns, and the vectors stay "
            "those of the model at the start. To adapt them too, give fewer frozen steps or more epochs."
        )
        notes = [record.getMessage() for record in caplog.records if "frozen" in record.getMessage()]
        assert notes == ([note] if name == "frozen" else [])
        caplog.clear()
        card = (tmp_path / name / "README.md").read_text(encoding="utf-8")
        row = "| frozen_steps | 2; the run has 2 steps, so only the softmax learned |\n"
        assert card.count(row) == (name == "frozen")
        after = state_of(tmp_path / name)
        is_equal = {np.array_equal(after[f"elmo.{each}"], before[each]) for each in compared}
        assert is_equal == {name == "frozen"}
        assert np.abs(after["softmax.bias"]).max() > 0
        assert ElmoTokenizer.from_pretrained(tmp_path / name).predicted_words == VOCABULARY


@pytest.mark.parametrize(("words", "splitter"), [((), "ptb"), (("--words", "whitespace"), "whitespace")])
def test_a_model_without_a_softmax_is_adapted_as_the_error_says(
    words: tuple[str, ...], splitter: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my table.csv").write_bytes("row,review\n1,Don't go to Zürich.\n".encode("latin-1") * 9)
    reading = ("--column", "review", "--encoding", "latin-1", "--input-format", "table")
    command = ("pretrain", "my table.csv", "-o", "lm", "--model", tiny_folder, *reading, *words)
    refused = run(*command)
    advice = f"`elmo-hf vocab 'my table.csv' -o WORDS --words {splitter} --encoding latin-1 --input-format table"
    assert_fails(refused, 1, "no softmax over words, so there is none to train further. Give `--vocabulary WORDS`, a")
    assert advice in refused.stderr
    program, *arguments = shlex.split(refused.stderr.split("`")[-2])
    assert program == "elmo-hf"
    output_of(*arguments)
    printed = output_of(*command, "--vocabulary", "WORDS", *ONE_STEP)
    assert ", 0.00% unknown." in printed


def test_a_text_that_cannot_be_read_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("row,review\n1,Yes .\n")
    text = tmp_path / "text.txt"
    text.write_text("Yes .\n")
    (tmp_path / "model").mkdir()  # it cannot be loaded
    for texts in ((table,), (text, "--held-out", table)):
        refused = run("pretrain", *texts, "-o", tmp_path / "lm", "--model", tmp_path / "model")
        assert_fails(refused, 1, "choose one (`--column NAME`), or rename it.")


@pytest.mark.parametrize(("words", "splitter"), [((), "ptb"), (("--words", "whitespace"), "whitespace")])
def test_an_adapted_model_says_what_it_started_from_and_keeps_its_splitter_unless_told(
    words: tuple[str, ...], splitter: str, work: Path, tmp_path: Path
) -> None:
    pretrain(work, tmp_path / "lm", "--model", "tiny", *words)
    assert ElmoTokenizer.from_pretrained(tmp_path / "lm").word_splitter == splitter
    card = (tmp_path / "lm" / "README.md").read_text(encoding="utf-8")
    assert "\ntrained from `tiny`, the small English model in the package `elmo-hf`, with `elmo-hf` " in card
    assert "base_model" not in card
    assert "| unroll_steps | 5 |" in card


@pytest.mark.parametrize(("words", "num_words"), [((), 3), (("--words", "ptb"), 7)])
def test_a_model_of_bilm_tf_learns_words_split_as_it_scores_them_unless_told(
    words: tuple[str, ...], num_words: int, tiny_lm_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "corpus.txt").write_text("Don't (ever) go.\n" * 9, encoding="utf-8")
    printed = pretrain(tmp_path, tmp_path / "lm", "--model", tiny_lm_folder, *words)
    assert f"training text: 9 sentences, {9 * num_words} words" in printed
    for folder, expected in ((tiny_lm_folder, 3), (tmp_path / "lm", num_words)):
        assert f"9 sentences, {9 * expected} words" in output_of("score", folder, tmp_path / "corpus.txt")
        assert ElmoTokenizer.from_pretrained(folder).word_splitter == "ptb"


def test_a_half_precision_language_model_is_adapted_in_single_precision(
    pretrained: tuple[Path, str], work: Path, tmp_path: Path
) -> None:
    ElmoForPreTraining.from_pretrained(pretrained[0], dtype=torch.float16).save_pretrained(tmp_path / "half")
    ElmoTokenizer.from_pretrained(pretrained[0]).save_pretrained(tmp_path / "half")
    pretrain(work, tmp_path / "lm", "--model", tmp_path / "half")
    for name, dtype in (("half", "float16"), ("lm", "float32")):
        assert {array.dtype.name for array in state_of(tmp_path / name).values()} == {dtype}
    assert ElmoForPreTraining.from_pretrained(tmp_path / "lm").dtype == torch.float32


def test_a_language_model_is_adapted_with_its_own_softmax_or_a_new_one(
    pretrained: tuple[Path, str], work: Path, tmp_path: Path
) -> None:
    pretrain(work, tmp_path / "same", "--model", pretrained[0], "--learning-rate", 0)
    assert bits(state_of(tmp_path / "same")) == bits(state_of(pretrained[0]))
    pretrain(work, tmp_path / "other", "--model", pretrained[0], "--softmax", "sampled", "--samples", 4)
    assert ElmoForPreTraining.from_pretrained(tmp_path / "other").config.softmax == "sampled"
    assert ElmoTokenizer.from_pretrained(tmp_path / "other").predicted_words == VOCABULARY
    vocabulary = words_file(tmp_path, VOCABULARY[:9])
    pretrain(work, tmp_path / "new", "--model", pretrained[0], "--vocabulary", vocabulary)
    assert state_of(tmp_path / "new")["softmax.weight"].shape == (9, 7)


def directions_of(output: str) -> list[dict[str, str]]:
    """What each line of perplexities names."""
    lines = [line for line in output.splitlines() if line.startswith("perplexity")]
    return [dict(re.findall(r"(forward|backward|mean) +([\d.]+)", line)) for line in lines]


def test_the_commands_pretrain_score_and_describe_it(tmp_path: Path) -> None:
    write_files(tmp_path, bidirectional=False)
    options = (*files_of(tmp_path), "--held-out", tmp_path / "held-out.txt")
    printed = directions_of(pretrain(tmp_path, tmp_path / "lm", *options))
    assert [sorted(line) for line in printed] == [["forward", "mean"]] * 2
    assert "backward" not in (tmp_path / "lm" / "log.json").read_text()
    scored = output_of("score", tmp_path / "lm", tmp_path / "held-out.txt", "--per-word", tmp_path / "bits.tsv")
    assert directions_of(scored) == printed
    assert "2 layers, with skip connections, forward only" in output_of("info", tmp_path / "lm")

"""How commands read text that is split already, and the note on it: what `score` takes from bilm-tf's models."""

import json
from pathlib import Path

import pytest
from checkpoints import allennlp_to_folder, shared
from commands import run
from language_models import WORDS, random_language_model, tiny_files, words_file
from newcomer import SMALL
from typer.testing import Result

from elmo_hf import ElmoConfig, ElmoTokenizer
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles
from elmo_hf.folder.loading import BILM_TF_SCORING, load_for_pretraining, scoring_splitter
from elmo_hf.text.sentences import looks_split

# The words of the tiny language model, and two that Penn Treebank rules would take apart.
SPLIT = "the ferry <unk> left , two @-@ two .\n\nnobody knew .\n"
RAW = "The ferry left, and nobody knew it was late.\n"
PTB_NOTE = "it was split by Penn Treebank rules. --words whitespace splits it at blanks."
EMBED = "it was split by Penn Treebank rules. --split-into-words splits it at blanks."
BLANKS_NOTE = "it was split at blanks. --words ptb splits it by Penn Treebank rules."


def notes(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    assert "Note:" not in result.stdout
    return [line for line in result.stderr.splitlines() if line.startswith("Note: ")]


@pytest.fixture
def split_text(tmp_path: Path) -> Path:
    path = tmp_path / "split.txt"
    path.write_text(SPLIT, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["The bank of the river ."], True),
        (["He did n't say `` yes '' , Mr. Smith 's aunt knew ."], True),
        (["Homarus gammarus , known as <unk> , is 0 @.@ 7 – 2 @.@ 2 kg .", "H. americanus ."], True),
        (["mr. <unk> is chairman of <unk> the dutch group 's board", "", "he is n't late"], True),
        (["“ Is it late ? ” he asked ."], True),
        (['"Is it late?" he asked (twice). "No!"', "Well ... it is - as they say - late."], False),
        (["The bank of the river.", "He didn't say yes, and Mr. Smith's aunt knew."], False),
        (["In the text each <unk> stands for a word, and in WikiText @-@ for a hyphen, as the page says."], False),
        (["Il dit : « Est-ce vrai ? » Puis il partit, sans se retourner, vers la gare."], False),
        (["i do not know what to say to you", "Sense & Sensibility", "1 - 2 + 3"], False),
        (["我们坐在河岸上，看着渡船离开。", "很晚了！"], False),
        ([], False),
    ],
)
def test_a_text_looks_split_where_its_marks_stand_alone(texts: list[str], expected: bool) -> None:
    assert looks_split(texts) is expected


def test_several_sentences_a_line_are_a_note(tmp_path: Path) -> None:
    note = "Note: most lines of the text have several sentences; each line was read as one."
    for lines, count in (
        (["We left. It rained.", "“No!” She went.", "Yes."], 1),
        (["We left. It rained.", "Yes.", ""], 0),
    ):
        (tmp_path / "in.txt").write_text("\n".join(lines), encoding="utf-8")
        found = notes(run("embed", "tiny", tmp_path / "in.txt", "-o", tmp_path / f"{count}.npz"))
        assert [each.startswith(note) for each in found] == [True] * count


def test_score_reads_text_at_blanks_with_a_model_from_bilm_tf(tiny_lm_folder: Path, split_text: Path) -> None:
    every = {"default": (), "whitespace": ("--words", "whitespace"), "ptb": ("--words", "ptb")}
    results = {name: run("score", tiny_lm_folder, split_text, *options) for name, options in every.items()}
    assert results["default"].stdout == results["whitespace"].stdout
    assert results["default"].stdout.startswith("2 sentences, 12 words, 16.67% unknown.\n")
    assert results["ptb"].stdout.startswith("2 sentences, 16 words, 37.50% unknown.\n")
    start = f"Note: {split_text} looks split into words already and has"
    assert notes(results["default"]) == [f"{start} 17% unknown words; {BLANKS_NOTE}"]
    assert notes(results["ptb"]) == [f"{start} 38% unknown words; {PTB_NOTE}"]
    assert ElmoTokenizer.from_pretrained(tiny_lm_folder).word_splitter == "ptb"


def test_other_models_score_text_as_their_tokenizer_splits_it(split_text: Path, tmp_path: Path) -> None:
    assert notes(run("score", "tiny", split_text)) == [
        f"Note: {split_text} looks split into words already and has 19% unknown words; {PTB_NOTE}"
    ]
    (tmp_path / "raw.txt").write_text(RAW)
    assert notes(run("score", "tiny", tmp_path / "raw.txt")) == []
    assert notes(run("score", "tiny", tmp_path / "raw.txt", "--words", "whitespace")) == [
        f"Note: {tmp_path / 'raw.txt'} has 22% unknown words; {BLANKS_NOTE}"
    ]
    words = json.dumps("the ferry left , two .".split())
    (tmp_path / "words.jsonl").write_text(f"{words}\n")
    assert notes(run("score", "tiny", tmp_path / "words.jsonl", "--words", "whitespace")) == []


def test_a_folder_tells_that_its_model_and_vocabulary_are_bilm_tfs(tmp_path: Path) -> None:
    tensorflow, (hdf5, *_) = tiny_files(), random_language_model(3, tmp_path / "files")
    without_words = AllenNlpFiles(tensorflow.options, tensorflow.weights)
    without_softmax = AllenNlpFiles(hdf5.options, hdf5.weights, hdf5.vocabulary)
    for name, files, dtype, is_bilm_tfs in (
        ("tensorflow", tensorflow, "float32", True),
        ("hdf5", hdf5, "float32", True),
        ("half", hdf5, "bfloat16", True),
        ("words", without_words, "float32", False),
        ("softmax", without_softmax, "float32", False),
    ):
        allennlp_to_folder(files, tmp_path / name, source_name=name, dtype=dtype)
        config, tokenizer = ElmoConfig.from_pretrained(tmp_path / name), ElmoTokenizer.from_pretrained(tmp_path / name)
        saved = getattr(config, "task_specific_params", None) == BILM_TF_SCORING
        assert (saved, tokenizer.word_splitter) == (is_bilm_tfs, "ptb"), name
        assert scoring_splitter(config, tokenizer) == ("whitespace" if is_bilm_tfs else "ptb"), name


def test_after_further_training_the_tokenizers_split_counts(tiny_lm_folder: Path, tmp_path: Path) -> None:
    for vocabulary in (None, words_file(tmp_path, WORDS)):
        model, tokenizer = load_for_pretraining(tiny_lm_folder, vocabulary)
        assert scoring_splitter(model.config, tokenizer) == "ptb"


def test_pretrain_and_vocab_print_the_note(tiny_lm_folder: Path, split_text: Path, tmp_path: Path) -> None:
    split_text.write_text(SPLIT * 9, encoding="utf-8")
    (tmp_path / "raw.txt").write_text(RAW)
    vocab = ("vocab", split_text, "-o", tmp_path / "words.txt")
    assert notes(run(*vocab)) == [f"Note: the corpus looks split into words already; {BLANKS_NOTE}"]
    assert notes(run("vocab", tmp_path / "raw.txt", "-o", tmp_path / "raw-words.txt")) == []
    adapt = ("pretrain", split_text, "--model", tiny_lm_folder, "--max-steps", 1, *SMALL)
    looks = "looks split into words already and has"
    assert notes(run(*adapt, "-o", tmp_path / "a", "--held-out", split_text, "--checkpoint-steps", 1)) == [
        f"Note: the {name} text {looks} 38% unknown words; {PTB_NOTE}" for name in ("held-out", "training")
    ]
    assert notes(run(*adapt, "-o", tmp_path / "b", "--words", "whitespace")) == [
        f"Note: the training text {looks} 17% unknown words; {BLANKS_NOTE}"
    ]


def test_embed_prints_the_note_on_text_that_looks_split(tiny_folder: Path, split_text: Path, tmp_path: Path) -> None:
    note = f"Note: the text looks split into words already; {EMBED}"
    assert notes(run("embed", tiny_folder, split_text, "-o", f"{tmp_path}/a/")) == [note]
    assert notes(run("embed", tiny_folder, "-", "-o", tmp_path / "b.hdf5", stdin=SPLIT)) == [note]
    assert notes(run("embed", tiny_folder, "-", "-o", tmp_path / "c.hdf5", stdin=RAW)) == []
    assert notes(run("embed", tiny_folder, split_text, "-o", tmp_path / "d.hdf5", "--split-into-words")) == []


@pytest.mark.slow
def test_score_gives_the_perplexities_that_bilm_tf_measured(tmp_path: Path) -> None:
    source = shared("fixtures", "bilm_tf_trained")
    text = shared("data", "wikitext2", "bilm_reference")
    files = AllenNlpFiles(source / "options.json", source / "model.ckpt-1484.index", text / "vocab_full.txt")
    allennlp_to_folder(files, tmp_path / "trained", source_name="trained")
    result = run("score", tmp_path / "trained", text / "heldout.txt")
    assert result.exit_code == 0, result.output
    (carried,) = (line for line in result.stdout.splitlines() if "state carried" in line)
    assert "forward     394.11   backward     378.44   mean     386.19" in carried


@pytest.mark.parametrize(
    "command", [("embed", "-o", "v/"), ("score",), ("vectors", "-o", "v.txt"), ("pretrain", "-o", "lm")], ids=str
)
def test_words_that_are_longer_than_a_model_reads_are_counted(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verb, *options = command
    Path("text").write_text(f"{'x' * 48}\n{'河' * 17}\n{'é' * 24}b\n" * 2, encoding="utf-8")  # 48, 51 and 49 bytes
    adapt = ("text", "--model", "tiny", "--max-steps", "1", "--rows", "1", "--unroll-steps", "2")
    result = run(verb, *(adapt if verb == "pretrain" else ("tiny", "text")), *options)
    counts = {"vectors": "2 of 3 words", "embed": "4 of 6 words at the beginning"}.get(verb, "4 of 6 words")
    assert [note.partition(",")[0] for note in notes(result) if "unknown" not in note] == [
        f"Note: {counts} have more than 48 bytes"
    ]

"""Training a language model of one direction: bilm-tf's with `bidirectional` false, by hand and by the commands."""

import json
import re
from pathlib import Path

import pytest
import torch
from checkpoints import run_python
from commands import run
from hand_written import adagrad, logged, train, weights_of
from newcomer import SMALL, write_files
from pretraining_runs import ROWS, STEPS, VOCABULARY, make_model
from tiny_inputs import assert_outputs_close

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.streams import Stream, window_arguments


def test_three_steps_equal_those_of_a_loop_by_hand(corpus: Corpus, tmp_path: Path) -> None:
    expected = make_model(bidirectional=False).train()
    named = {name: weight for name, weight in expected.named_parameters() if "scalar_mixes" not in name}
    accumulators = {name: torch.ones_like(weight) for name, weight in named.items()}
    stream, state, losses = Stream(corpus, ROWS, is_backward=False, seed=11), None, []
    for _ in range(3):
        output = expected(**window_arguments(corpus, stream.take(STEPS)), state=state)
        state = output.state
        losses.append(output.forward_loss.item())
        gradients = torch.autograd.grad(STEPS * output.forward_loss, list(named.values()))
        norm = float(sum(gradient.pow(2).sum() for gradient in gradients)) ** 0.5
        with torch.no_grad():
            for (name, weight), gradient in zip(named.items(), gradients, strict=True):
                adagrad(weight, gradient * 10 / max(norm, 10), accumulators[name])
    trainer = train(corpus, tmp_path, make_model(bidirectional=False), max_steps=3)
    assert_outputs_close(weights_of(trainer.model), weights_of(expected), 2e-6)
    assert_outputs_close(logged(trainer, "forward_loss"), losses, 1e-4)
    assert_outputs_close(logged(trainer, "loss"), losses, 1e-4)
    assert logged(trainer, "backward_loss") == []


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A newcomer's folder with a model of one direction in `lm`."""
    work = write_files(tmp_path_factory.mktemp("newcomer"))
    fields = json.loads((work / "config.json").read_text())
    (work / "config.json").write_text(json.dumps(fields | {"bidirectional": False}))
    files = ("--vocabulary", work / "words.txt", "--config", work / "config.json", "--held-out", work / "held-out.txt")
    result = run("pretrain", work / "corpus.txt", "-o", work / "lm", *files, "--max-steps", 2, *SMALL)
    assert result.exit_code == 0, result.output
    (work / "printed").write_text(result.stdout)
    return work


def perplexities(output: str) -> list[dict[str, str]]:
    """What each line of perplexities names."""
    lines = [line for line in output.splitlines() if line.startswith("perplexity")]
    return [dict(re.findall(r"(forward|backward|mean) +([\d.]+)", line)) for line in lines]


def test_the_commands_pretrain_score_and_describe_it(work: Path, tmp_path: Path) -> None:
    printed = perplexities((work / "printed").read_text())
    assert [sorted(line) for line in printed] == [["forward", "mean"]] * 2
    assert all(line["forward"] == line["mean"] for line in printed)
    log = json.loads((work / "lm" / "log.json").read_text())
    assert not any("backward" in name for entry in log for name in entry)
    scored = run("score", work / "lm", work / "held-out.txt", "--per-word", tmp_path / "bits.tsv")
    assert scored.exit_code == 0, scored.output
    assert perplexities(scored.stdout) == printed
    assert "2 layers, with skip connections, forward only" in run("info", work / "lm").stdout
    assert "outputs.backward_logits" not in (work / "lm" / "README.md").read_text()


def test_its_folder_works_where_this_package_is_not_imported(work: Path, tmp_path: Path) -> None:
    code = """
import sys
import torch
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
inputs = tokenizer(["a bb ccc"], return_tensors="pt")
biLM = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
lm = AutoModelForPreTraining.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
output = lm(**inputs, output_logits=True)
print(tuple(biLM(**inputs).last_hidden_state.shape), tuple(output.forward_logits.shape), output.backward_logits)
print("elmo_hf" in sys.modules, lm(**inputs, labels=torch.tensor([[0, 3, 4, 2, 1]])).loss.item())
"""
    printed = run_python(code, tmp_path, work / "lm").splitlines()
    assert printed[0] == f"(1, 5, 7) (1, 5, {len(VOCABULARY)}) None"
    model, tokenizer = (
        ElmoForPreTraining.from_pretrained(work / "lm").eval(),
        ElmoTokenizer.from_pretrained(work / "lm"),
    )
    loaded, loss = printed[1].split()
    assert loaded == "False"
    inputs = tokenizer(["a bb ccc"], return_tensors="pt")
    assert float(loss) == pytest.approx(model(**inputs, labels=torch.tensor([[0, 3, 4, 2, 1]])).loss.item())

"""A classifier learns in two processes what it learns in one: under both versions of FSDP, and with uneven batches."""

from pathlib import Path

from tests.helpers.launching import fork_two


def test_two_processes_train_a_classifier_as_one_does_under_both_versions_of_fsdp(tmp_path: Path) -> None:
    output = fork_two("sharded_ranks", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"done-0", "done-1"}, output


def test_two_processes_of_which_one_has_more_batches_train_a_classifier_as_one_does(tmp_path: Path) -> None:
    output = fork_two("sharded_ranks", tmp_path, "train_uneven")
    assert {path.name for path in tmp_path.iterdir()} == {"done-0", "done-1"}, output

"""Proteins: the lines of SeqVec's README, rewritten, and `elmo-hf embed` of a FASTA file give the same vectors."""

import gzip
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from allennlp_cases import BASE
from archives import write_zip
from commands import run

RESIDUES = """
import torch
from allennlp.commands.elmo import ElmoEmbedder

seqvec = ElmoEmbedder(options_file, weight_file, cuda_device=-1)
proteins = [torch.tensor(layers).sum(dim=0) for layers in seqvec.embed_batch([list(each) for each in sequences])]
"""
SEQUENCES = {"sp|P1|FIRST": "SEQWENCE", "second": "PROTEIN", "third": "W"}


@pytest.mark.parametrize("layers", ["sum", "pooled_sum"])
def test_vectors_of_a_fasta_file_are_those_of_seqvec(layers: str, tmp_path: Path) -> None:
    archive = write_zip(
        tmp_path / "seqvec.zip", {f"uniref50_v2/{Path(file).name}": Path(file).read_bytes() for file in BASE.files}
    )
    lines = (f">{name} a protein\n{each[:3]}\n{each[3:].lower()}\n\n" for name, each in SEQUENCES.items())
    source, output = tmp_path / "proteins.fa.gz", tmp_path / "vectors.hdf5"
    source.write_bytes(gzip.compress("".join(lines).encode()))
    run("convert", archive, tmp_path / "folder")
    run("embed", tmp_path / "folder", source, "-o", output, "--layers", layers)
    names = BASE.run(RESIDUES, sequences=list(SEQUENCES.values()))
    with h5py.File(output) as file:
        assert json.loads(file["sentence_to_index"][0]) == dict(zip(SEQUENCES, "012", strict=True))
        for row, residues in enumerate(names["proteins"]):
            expected = residues.mean(dim=0) if layers == "pooled_sum" else residues
            # float32 sums of two programs that batch the words differently
            np.testing.assert_allclose(file[str(row)][()], expected, rtol=1e-5, atol=1e-6)

"""The warning of bfloat16 on a processor that does not multiply it: once a process, wherever it is computed."""

import pytest
import torch
from tiny_inputs import random_inputs
from transformers.utils import logging

from elmo_hf import ElmoModel
from elmo_hf.scan.kernels import using
from elmo_hf.scan.processor_kernels import ProcessorKernels

WARNING = (
    "This processor does not multiply bfloat16, so bfloat16 is many times slower than float32: load the model with "
    "dtype=torch.float32, and train without bf16."
)


@pytest.mark.parametrize("multiplies", [False, True])
@pytest.mark.parametrize("way", ["float32", "loaded", "autocast"])
def test_what_computes_in_bfloat16_warns_once_where_it_is_slow(
    way: str, multiplies: bool, tiny_model: ElmoModel, caplog: pytest.LogCaptureFixture
) -> None:
    logging.warning_once.cache_clear()
    inputs = random_inputs(tiny_model.config, [4, 2])
    model = tiny_model.bfloat16() if way == "loaded" else tiny_model
    with using(ProcessorKernels(multiplies_bfloat16=multiplies)), torch.autocast("cpu", enabled=way == "autocast"):
        for _ in range(2):
            model(**inputs).last_hidden_state.float().sum().backward()
    found = [record.message for record in caplog.records if "bfloat16" in record.message]
    assert found == ([] if multiplies or way == "float32" else [WARNING])

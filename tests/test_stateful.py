"""`StatefulElmo`: what it keeps between calls, and that it keeps nothing once it is switched off."""

import torch

from elmo_hf import ElmoModel
from elmo_hf.stateful import StatefulElmo
from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer


@torch.no_grad()
def test_switched_off_it_keeps_the_state_it_had(tiny_folder: object, tiny_tokenizer: ElmoTokenizer) -> None:
    elmo = StatefulElmo(ElmoModel.from_pretrained(tiny_folder).eval())
    inputs = tiny_tokenizer(["The ferry left .", "Yes ."], padding=True, return_tensors="pt")
    vectors = []
    for stateful in (False, True, False, True):
        elmo.stateful = stateful
        vectors.append(elmo(**inputs).last_hidden_state)
    for other in vectors[1:3]:
        torch.testing.assert_close(other, vectors[0], rtol=0, atol=0)
    assert (vectors[3] - vectors[0]).abs().max() > 1e-2
    elmo.stateful = True
    elmo.reset_states()
    elmo(**inputs)
    torch.testing.assert_close(elmo(**inputs).last_hidden_state, vectors[3], rtol=0, atol=0)

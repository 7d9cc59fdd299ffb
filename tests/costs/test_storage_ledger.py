"""Each storage once, from when it is seen until it is freed."""

import numpy as np
import torch
from storage_ledger import StorageLedger

from edgesim.compression.compressors import TopK
from edgesim.learning.parameters import ParameterLayout


def test_tensors_on_one_storage_count_once_until_the_last_is_gone():
    ledger = StorageLedger()
    x = torch.zeros(10)
    view = x[3:5]
    ledger.see(view, "activations")
    ledger.see(x, "gradients")
    assert dict(ledger.now) == {"activations": 40}
    del x
    assert ledger.now.total() == 40
    del view
    assert ledger.now.total() == 0
    assert dict(ledger.at_peak) == {"activations": 40}


def test_what_autograd_saves_lives_until_its_backward_pass():
    ledger = StorageLedger()
    x = torch.ones(5, requires_grad=True)
    y = x.exp()
    ledger.see(y, "activations")
    loss = y.sum()
    del y
    assert ledger.now.total() == 20
    loss.backward()
    assert ledger.now.total() == 0


def test_arrays_count_with_all_of_the_memory_that_they_hold():
    ledger = StorageLedger()
    rows = np.zeros((4, 6), np.float32)
    tensor = torch.from_numpy(rows)
    ledger.see(rows[1], "mailbox")
    ledger.see(rows[2:, :3], "mailbox")
    assert ledger.now["mailbox"] == 96
    ledger.see(tensor, "mailbox")  # the same memory under another name
    assert ledger.now["mailbox"] == 96


def test_the_peak_is_that_of_all_components_together():
    ledger = StorageLedger()
    early = torch.zeros(100)
    ledger.see(early, "activations")
    del early
    late = [torch.zeros(60), torch.zeros(60)]
    ledger.see(late[0], "gradients")
    ledger.see(late[1], "optimizer")
    assert dict(ledger.at_peak) == {"activations": 0, "gradients": 240, "optimizer": 240}


def test_messages_stay_until_they_are_forgotten():
    ledger = StorageLedger()
    envelopes = [b"abc", b"de"]
    ledger.see(envelopes, "send_buffers")
    ledger.forget(envelopes, "send_buffers")
    assert ledger.now.total() == 0
    assert ledger.at_peak == {"send_buffers": 5}


def test_a_payload_is_what_it_was_made_with_and_what_it_has_decoded_and_encoded():
    layout = ParameterLayout.from_shapes([(50,), (50,)])
    x, rng = torch.randn(100, generator=torch.Generator().manual_seed(1)), np.random.default_rng(0)
    payload = TopK(keep=0.5, values="int8").compress(x, layout, rng)
    ledger = StorageLedger()
    ledger.see(payload, "send_buffers")
    # 50 codes, their fp32 numbers and int64 places; a scale and an int64 count for each tensor.
    made = 50 * (1 + 4 + 8) + 2 * (4 + 8)
    assert ledger.now["send_buffers"] == made
    sections = payload.sections
    ledger.see(payload, "send_buffers")
    assert ledger.now["send_buffers"] == made + len(sections.indices)  # values are the codes

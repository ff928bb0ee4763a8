"""One biLM layer over the words of a batch, fast: tensors in, tensors out. The reference is `LSTMP.forward`."""

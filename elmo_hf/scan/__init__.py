"""Fast scans of one biLM layer over a batch. They take and return tensors; the reference is `LSTMP.forward`."""

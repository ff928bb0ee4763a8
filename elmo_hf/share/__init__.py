"""What leaves this machine: pushed folders, exported graphs, model cards."""

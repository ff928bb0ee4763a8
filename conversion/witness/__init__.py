"""What a converted model is compared with."""

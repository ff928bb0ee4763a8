"""The interfaces of simple_elmo and ELMoForManyLangs, for code written for these programs."""

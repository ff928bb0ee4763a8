"""Arguments and options that several commands have."""

from typing import Annotated, Literal

import typer

# How raw text is split into words.
Splitter = Literal["whitespace", "ptb"]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A folder, a Hub name, or tiny, the model in the package.")]
Encoding = Annotated[str, typer.Option(help="Encoding of files, such as latin-1.")]
Licence = Annotated[
    str | None, typer.Option("--license", metavar="NAME", help="Licence of the weights for the card, such as mit.")
]
Language = Annotated[
    list[str] | None, typer.Option(metavar="CODE", help="Language for the card, such as en; may be repeated.")
]
SourceOfWeights = Annotated[
    str | None,
    typer.Option("--source", metavar="ADDRESS", help="For the card: where the weights come from, or a Hub name."),
]

"""The command line `elmo-hf`: its list of commands, with examples, and `--version`.

Modules of commands import nothing heavy, and a command imports what it runs, so help and errors of usage are fast.
"""

import logging
import os
import platform
import sys
from importlib import metadata
from typing import Annotated

from typer import Context, Option, Typer

from .conversion import convert, models, publish
from .embedding import embed
from .errors import CONTEXT, Command, say
from .gaps import fill
from .language_models import pretrain, score, vocab
from .sharing import card, check, env, export, info, push
from .usages import usages
from .vectors import vectors

TEXT = "echo 'The bank of the river .' > text.txt"
GREETING = """ELMo as a transformers model. To begin with, on a text with one sentence a line:

  elmo-hf embed tiny text.txt -o vectors.hdf5   writes the vectors of its words
  elmo-hf score tiny text.txt                   measures perplexity; --per-word surprisal.tsv: surprisal of each word
  elmo-hf embed small text.txt -o small.hdf5    does it with a published model, downloaded at its first use

tiny is a small English model in the package. `elmo-hf models` lists the published ones, `elmo-hf -h` all commands."""
CONVERSION = ("elmo-hf convert tiny files --to allennlp", "elmo-hf convert files my-elmo --check")

app = Typer(
    name="elmo-hf",
    invoke_without_command=True,
    context_settings=CONTEXT,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def start(
    context: Context, version: Annotated[bool, Option("--version", help="Show the version and exit.")] = False
) -> None:
    """ELMo (Peters et al. 2018) as a transformers model: convert, embed, pretrain, score, share.

    MODEL is a folder, a Hub name, or a short name: `tiny`, the small English model in the package, or a published
    model, which is much better and is downloaded at its first use; `elmo-hf models` lists them.
    """
    if version:
        versions = [f"{package} {metadata.version(package)}" for package in ("elmo-hf", "torch", "transformers")]
        say(", ".join([*versions, f"Python {platform.python_version()}"]))
        context.exit()
    if context.invoked_subcommand is None:
        say(GREETING)
    for name in ("torchao", "torch.utils._pytree"):  # these log whenever transformers imports torchao
        logging.getLogger(name).setLevel(logging.ERROR)


for command, *examples in (
    (convert, *CONVERSION),
    (models, "elmo-hf models", "elmo-hf models original"),
    (embed, TEXT, "elmo-hf embed tiny text.txt -o vectors.hdf5 --layers average"),
    (
        vectors,
        TEXT,
        "elmo-hf vocab text.txt -o words.txt",
        "elmo-hf vectors tiny words.txt -o vectors.txt",
        "elmo-hf vectors tiny words.txt --nearest river",
    ),
    (
        usages,
        TEXT,
        "elmo-hf usages tiny text.txt --word the -o the.csv",
        "echo 'A river , two rivers .' > new.txt",
        "elmo-hf usages tiny text.txt new.txt --word river --forms rivers -o river.csv",
    ),
    (export, "elmo-hf export tiny elmo.pt2"),
    (push, *CONVERSION, "elmo-hf push my-elmo my-org/my-elmo --private"),
    (publish, "elmo-hf publish my-org small original --private"),
    (vocab, TEXT, "elmo-hf vocab text.txt -o words.txt --size 50000"),
    (
        pretrain,
        TEXT,
        "elmo-hf pretrain text.txt -o my-elmo --model tiny --epochs 1 --rows 1 --unroll-steps 3",
        "elmo-hf vocab text.txt -o words.txt",
        """echo '{"cell_size": 64, "projection_size": 16}' > config.json""",
        "elmo-hf pretrain text.txt -o new --vocabulary words.txt --config config.json --rows 1 --unroll-steps 3",
    ),
    (score, TEXT, "elmo-hf score tiny text.txt --per-word surprisal.tsv"),
    (fill, 'elmo-hf fill tiny "The old ___ told us a story ."'),
    (info, "elmo-hf info tiny"),
    (check, *CONVERSION, "elmo-hf check my-elmo"),
    (env, "elmo-hf env"),
    (card, *CONVERSION, "elmo-hf card my-elmo --license apache-2.0 --language en"),
):
    app.command(cls=Command, epilog="\n".join(["\b", "Example:", *(f"  {line}" for line in examples)]))(command)


def main() -> None:
    """Entry point of `elmo-hf`.

    On Linux without a GPU, the process may not allocate more than the machine's memory, so a damaged file of any format
    ends only this process.
    """
    if sys.platform == "linux" and not os.path.exists("/proc/driver/nvidia"):  # CUDA maps memory too; not measured
        import resource

        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if soft == resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, hard))
    app(prog_name="elmo-hf")  # also if a launcher started the module

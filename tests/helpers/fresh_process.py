"""Programs in processes of their own that start fast, because they are forked from a process that has imported torch.

Importing torch and the libraries that transformers imports takes six seconds of processor time. Python's fork server
does it once. It imports neither transformers and `huggingface_hub`, which read their environment when they are
imported, nor this package.
"""

import faulthandler
import gc
import multiprocessing
import os
import sys
import tempfile
import traceback
import types
from pathlib import Path

PRELOADED = ["torch", "torch._dynamo", "torch.distributed.tensor", "torchao", "sklearn.metrics"]


def run_forked(code: str, arguments: list[str], folder: Path, environment: dict[str, str], seconds: float = 600) -> str:
    """Runs a program as `python -c` does, killed if it takes longer; returns what it printed.

    Raises:
        AssertionError: with the end of its output, if it failed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as outputs:
        paths = [Path(outputs, name) for name in ("stdout", "stderr")]
        process = context.Process(target=run_program, args=(code, arguments, folder, environment, seconds, *paths))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
        printed, errors = (path.read_text(encoding="utf-8") if path.exists() else "" for path in paths)
    assert process.exitcode == 0, f"exit code {process.exitcode}: {(printed + errors)[-3000:]}"
    return printed


def python_path(*folders: Path) -> str:
    """A PYTHONPATH of folders and of what this process has there, which may be the package."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def run_program(
    code: str, arguments: list[str], folder: Path, environment: dict[str, str], seconds: float, *outputs: Path
) -> None:
    """What a forked process does: it becomes one that `python -c` started.

    Just before it is killed, it prints where each of its threads is.
    """
    gc.freeze()  # No garbage collection visits, and so copies, what the fork server imported.
    # Torch replaces its pool of threads after a fork; if two threads ask for it at once, one may find none.
    sys.modules["torch"].set_num_threads(1)
    for descriptor, path in zip((1, 2), outputs, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    faulthandler.dump_traceback_later(0.9 * seconds, file=2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["-c", *arguments]
    # The program finds its own folder, PYTHONPATH and what is installed, but not the folders of the tests.
    installed = [path for path in sys.path if "site-packages" in path or path.startswith(sys.base_prefix)]
    given = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = ["", *given, *installed]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exit_code = 0
    try:
        exec(compile(code, "<string>", "exec"), main.__dict__)
    except SystemExit as error:
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        exit_code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if exit_code:
        os._exit(exit_code)


def without(*packages: str) -> str:
    """The beginning of a program in whose process these packages are as good as not installed."""
    return f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {set(packages)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
"""

"""Commands that are interrupted and given again after one thing was changed.

A command that writes makes a *thing* (`things.py`): a file, a folder, or a commit on a Hub of this machine. Programs of
users that call the library are commands too (`programs.py`). A case

    1. makes the inputs, gives the command, and interrupts it at a change of its files, or lets it end;
    2. makes one change (`changes.py`): of a file or folder that the command read or wrote, of an argument, of the
       working folder, of the clock, of the number of processes;
    3. gives the same command again, and judges what it did (`cases.py`):

    equal      it ended well; its files are those of an undisturbed run in the changed surroundings, no other file is
               there, and the numbers that it printed are those measured in the files
    refused    one line names what is wrong; once the change is undone, the same command gives the undisturbed files
    defect     anything else

Of things with a list of checksums, another kind of case changes one file of a finished thing; `elmo-hf check` must name
it, unless the change is in `NOT_SEEN`, the list of what `check` cannot see.

`python -m tests.changed --seed S --cases N` runs any number of cases, `test_changed.py` a few. The seed and the number
of a case decide everything, so `--seed S --only NUMBER` repeats one. With `--root FOLDER`, a run uses the inputs and
the undisturbed results of an earlier run of the same code, which spares a minute.
"""

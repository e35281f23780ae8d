"""Plans as another machine would make them: to look at, not to run."""

import numpy as np
import pytest
from runtime_models import compiled, convolutions, image

from saccade import tuning
from saccade.backends.cpu.machines import MACHINES
from saccade.backends.cpu.processor import this_machine
from saccade.errors import OptionError

X = image(1, 3, 40, 40)


@pytest.mark.parametrize("name", MACHINES)
def test_plans_name_their_machine_and_take_its_cores(name):
    plan = compiled(convolutions(), machine=name).plan(X.shape)
    assert (plan.isa, plan.threads) == (MACHINES[name].isa, MACHINES[name].cores)
    assert plan.speeds.name == name and plan.speeds.cache == MACHINES[name].l3
    assert compiled(convolutions(), machine=name, threads=3).plan(X.shape).threads == 3


def test_an_older_instruction_set_of_a_machine():
    plans = [compiled(convolutions(), machine="zen5", isa=isa).plan(X.shape)
             for isa in ("native", "avx2")]  # fmt: skip
    assert [plan.isa for plan in plans] == ["avx512", "avx2"]


def test_they_do_not_run():
    with pytest.raises(OptionError, match="plans for machine='neoverse-n1' are not run here"):
        compiled(convolutions(), machine="neoverse-n1")(X)


@pytest.mark.parametrize(
    "more", [{"machine": "pentium"}, {"machine": "neoverse-n1", "isa": "avx2"}]
)
def test_what_is_no_machine_is_refused(more):
    with pytest.raises(OptionError, match=more["machine"]):
        compiled(convolutions(), **more).plan(X.shape)


def test_what_was_measured_here_is_not_for_others(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    here = compiled(convolutions(), threads=1)
    y = here(X)
    tuning.keep(here._started().identity, tuning.Algorithms("cpu", this_machine(), ()))
    again = compiled(convolutions(), threads=1)
    assert again._started()._choices() is not None and np.array_equal(again(X), y)
    assert compiled(convolutions(), machine="zen5")._started()._choices() is None

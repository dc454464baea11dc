"""Run files and --set: what is refused, when, and at which key; bounders by their registry; step sizes that can run."""

from __future__ import annotations

import functools
import math

import pytest

import sordino as so
from sordino.algorithms.schedules import as_schedule, constant, geometric, piecewise
from sordino.bounding import BOUNDERS
from sordino.config import load_config
from sordino.errors import InvalidInput
from sordino.runs.seeds import as_seed
from tests.toys import RUN_FILE, write_run_file

CONFIG = RUN_FILE.replace("clients = 20", 'clients = 20\nmodel = "mlp:8"')
INFINITE_OR_NOT_POSITIVE = (math.inf, -math.inf, math.nan, 0.0, -0.5, 1e300, 1e-50)


@pytest.fixture
def write(tmp_path):
    return functools.partial(write_run_file, tmp_path, CONFIG)


def complaint(path, *changes):
    """What `sordino plan` says of a file, without its folder."""
    with pytest.raises(InvalidInput) as caught:
        planned(path, changes)
    return str(caught.value).replace(str(path), path.name)


def planned(path, changes):
    config = load_config(path, changes)
    return config.resolve(config.plan(), config.task().population)


# --- Bounders by their registry -----------------------------------------------------------------------------------


def half_clip(C: float) -> object:
    return so.clip(C / 2)


def keyword_clip(*, C: float) -> object:
    return so.clip(C)


def named_clip(C: float, times: int, unit: str = "one") -> object:
    return so.clip(C * times if unit == "one" else 2 * C * times)


def no_argument() -> object:
    return so.normalize(1.0)


@pytest.mark.parametrize(
    ("factory", "value", "bound"),
    [
        (half_clip, "3.0", so.clip(1.5)),
        (half_clip, "3", so.clip(1.5)),
        (keyword_clip, "3.0", so.clip(3.0)),
        (named_clip, "{ C = 0.5, times = 3 }", so.clip(1.5)),
        (named_clip, '{ C = 0.5, times = 3, unit = "two" }', so.clip(3.0)),
        (no_argument, "{}", so.normalize(1.0)),
    ],
)
def test_a_listed_bounder_is_a_key_of_bound(write, monkeypatch, factory, value, bound):
    load_config(write()).plan()  # what was built before the bounder was listed does not hide it
    monkeypatch.setitem(BOUNDERS, factory.__name__, factory)
    path = write(("clip = 1.0", f"{factory.__name__} = {value}"))
    assert load_config(path).plan().method.bound == bound


def test_a_listed_bounder_is_named_in_what_is_said(write, monkeypatch):
    monkeypatch.setitem(BOUNDERS, "half_clip", half_clip)
    *usual, mine = BOUNDERS
    assert f"use one of {', '.join(usual)}, {mine}" in complaint(write(), "bound.klip=1")
    assert f"give one of {', '.join(usual)} and {mine}" in complaint(write(), "bound.half_clip=1.0")
    assert "[bound] half_clip = 'x': must be a number" in complaint(write(("clip = 1.0", 'half_clip = "x"')))


def test_the_bounders_of_the_package_are_said_in_the_usual_order(write):
    said = complaint(write(), "bound.klip=1")
    assert (
        said == f"cfg.toml, --set: [bound] klip = 1: is not known; did you mean clip? use one of {', '.join(BOUNDERS)}"
    )
    *names, last = BOUNDERS
    two = f"give one of {', '.join(names)} and {last}"
    assert complaint(write(), "bound.normalize=2.0") == f"cfg.toml: bound = {{'clip': 1.0, 'normalize': 2.0}}: {two}"


def test_a_number_of_adaptive_clip_is_found_in_its_table(write):
    path = write(("clip = 1.0", "adaptive_clip = { initial = -1.0, indicator_noise_std = 1.0 }"))
    assert complaint(path).startswith("cfg.toml:12: [bound] adaptive_clip = -1.0: a norm bound must be")


# --- --set --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("privacy.epsilon=nan", "cfg.toml, --set: [privacy] epsilon = nan: must be positive"),
        ("privacy.epsilon=-nan", "cfg.toml, --set: [privacy] epsilon = nan: must be positive"),
        ("privacy.epsilon=[nan]", "cfg.toml, --set: [privacy] epsilon = [nan]: must be positive"),
        ("privacy.epsilon=0", "cfg.toml, --set: [privacy] epsilon = 0: must be positive"),
        ("privacy.epsilon=-1", "cfg.toml, --set: [privacy] epsilon = -1: must be positive"),
        ("privacy.epsilon=[]", "cfg.toml, --set: [privacy] epsilon = []: give one number, or one for each client"),
        ("bound.clip={ grid = [nan] }", "holds 1 runs, not one"),
        ("bound.clip=nan", "cfg.toml, --set: [bound] clip = nan: a norm bound"),
        ("algorithm.local_lr=nan", "cfg.toml, --set: [algorithm] local_lr = nan: must be positive and finite"),
        ("run.rounds=nan", "cfg.toml, --set: [run] rounds = nan: must be a whole number"),
    ],
)
def test_nan_is_answered_by_the_ordinary_checks(write, change, says):
    assert says in complaint(write(), change)


@pytest.mark.parametrize("name", ["run.ründe", "rün.rounds", "run.²", "a b.rounds", 'run."rounds"', "run.a.b"])
def test_keys_of_set_are_bare_keys_of_toml(write, name):
    assert complaint(write(), f"{name}=3") == (
        f"set = {name + '=3'!r}: write section.key=value, for instance run.rounds=50"
    )


def test_a_table_inside_a_section_ends_it(write):
    """A seed of the data is not the seed of the run."""
    path = write(("seed = 0\n", "\n[task.options]\nseed = 7\n"))
    assert load_config(path, ("run.seed=3",)).file.run.seed == 3
    assert complaint(path) == "cfg.toml:22: [task.options] seed = 7: digits takes standardize"


@pytest.mark.parametrize(
    ("replaced", "change", "kept"),
    [
        (("seed = 0", "seed = 0  # of the noise"), "run.seed=3", "seed = 3  # of the noise\n"),
        (
            ("local_lr = 0.5", "local_lr = { values = [0.1,\n  0.2], until = [1] }"),
            "algorithm.local_lr=0.3",
            "local_lr = 0.3\n",
        ),
        (("[run]\nrounds = 3\nseed = 0", "[task.options]\nstandardize = false"), "run.rounds=2", "[run]\nrounds = 2"),
        (("[run]\nrounds = 3\nseed = 0", "[run]\nrounds = 3"), "run.seed=3", "rounds = 3\nseed = 3"),
    ],
    ids=["comment", "several lines", "new section", "new key"],
)
def test_set_writes_into_the_text(write, replaced, change, kept):
    config = load_config(write(replaced), (change,))
    section, _, value = change.partition("=")
    section, _, key = section.partition(".")
    assert str(getattr(getattr(config.file, section), key)) == value
    assert kept in config.changed
    again = config.path.with_name("again.toml")
    again.write_text(config.changed)
    assert load_config(again).file == config.file


def test_set_of_a_value_that_is_no_section(write):
    path = write(("[run]\nrounds = 3\nseed = 0\n", ""))
    path.write_text("run = 3\n" + path.read_text())
    assert complaint(path, "run.rounds=2") == "set = 'run.rounds=2': run is not a section of the file"
    assert complaint(path).startswith("cfg.toml: [run] = 3: must be a table")


def test_numbers_beyond_floats_are_refused(write):
    assert "[bound] clip = 1000" in complaint(write(), "bound.clip=1" + 400 * "0")


# --- Step sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", INFINITE_OR_NOT_POSITIVE)
def test_step_sizes_are_positive_and_finite(wrong):
    for make in (
        lambda: constant(wrong),
        lambda: geometric(wrong, 0.5),
        lambda: piecewise((1.0, wrong), (2,)),
        lambda: as_schedule(wrong),
        lambda: as_schedule({"start": wrong, "decay": 0.5}),
        lambda: as_schedule({"values": [wrong, 1.0], "until": [2]}),
    ):
        with pytest.raises(InvalidInput, match="must be positive and finite"):
            make()


@pytest.mark.parametrize("wrong", [math.inf, math.nan, 0.0, -0.5, 1.5])
def test_a_decay_lies_within_0_and_1(wrong):
    with pytest.raises(InvalidInput, match=r"local_lr.*must lie in \(0, 1\]"):
        as_schedule({"start": 1.0, "decay": wrong}, "local_lr")


@pytest.mark.parametrize("wrong", [math.inf, math.nan, 2.5])
def test_steps_change_after_whole_rounds(wrong):
    with pytest.raises(InvalidInput, match=r"local_lr.*rounds must be whole numbers"):
        as_schedule({"values": [1.0, 0.1], "until": [wrong]}, "local_lr")
    assert as_schedule({"values": [1.0, 0.1], "until": [2.0]}) == piecewise((1.0, 0.1), (2,))


def test_a_step_size_beyond_all_floats_is_refused():
    with pytest.raises(InvalidInput, match="use numbers"):
        as_schedule(10**400)


# --- [run] --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("run.seed=-1", "cfg.toml, --set: [run] seed = -1: must lie in [0, 2^32)"),
        ("run.seed=4294967296", "cfg.toml, --set: [run] seed = 4294967296: must lie in [0, 2^32)"),
        ("run.rounds=0", "cfg.toml, --set: [run] rounds = 0: must be at least 1"),
        ("run.rounds=10000001", "cfg.toml, --set: [run] rounds = 10000001: must be at least 1, and at most 10,000,000"),
        ("run.chunk=0", "cfg.toml, --set: [run] chunk = 0: must be at least 1"),
        ("run.evaluate_every=-1", "cfg.toml, --set: [run] evaluate_every = -1: must be at least 1"),
    ],
)
def test_a_file_is_refused_where_a_run_would_be(write, change, says):
    assert complaint(write(), change).startswith(says)


@pytest.mark.parametrize(
    "change", ["run.seed=4294967295", "run.rounds=10000000", "run.chunk=1", "run.evaluate_every=1"]
)
def test_the_ends_of_the_ranges_are_accepted(write, change):
    load_config(write(), (change,))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_are_refused_in_the_words_of_a_run(write, seed):
    with pytest.raises(InvalidInput) as caught:
        as_seed(seed)
    assert complaint(write(), f"run.seed={seed}") == f"cfg.toml, --set: [run] {caught.value}"


# --- [privacy] by mechanism -----------------------------------------------------------------------------------------


def test_a_mechanism_brings_its_options(write):
    path = write(("epsilon = 8.0\n", 'trust = "local"\nmechanism = "qtdl"\nmessage_epsilon = 5\nlevels = 4\n'))
    plan = load_config(path).plan()
    assert (plan.mechanism, plan.noise.message_epsilon, plan.noise.levels) == ("qtdl", 5.0, 4)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["levels=4"], "[privacy] levels = 4: is an option of qtdl and binomial"),
        (["mechanism=privunit", "levels=4"], "[privacy] levels = 4: is an option of qtdl and binomial"),
        (["mechanism=qtdl", "gamma=x"], "[privacy] gamma = 'x': is an option of privunit"),
        (
            ["mechanism=gausian", "levels=4"],
            "[privacy] mechanism = 'gausian': did you mean gaussian? use one of gaussian, ",
        ),
        (["level=4"], "[privacy] level = 4: is not known; use one of trust, mechanism, epsilon, "),
    ],
    ids=str,
)
def test_options_of_another_mechanism_are_refused(write, changes, says):
    assert says in complaint(write(), *(f"privacy.{change}" for change in changes))


def test_the_name_of_a_method_is_looked_at_before_its_options(write):
    assert "[algorithm] name = 'fedavgg': did you mean fedavg? use one of accelerated_mb_sgd, " in complaint(
        write(), "algorithm.name=fedavgg"
    )


def test_a_server_optimiser_has_a_name(write):
    for wrong in ("3", "lion", "{name = 'lion'}", "{b1 = 0.9}"):
        assert "server_optimiser" in complaint(
            write(), f"algorithm.server_optimiser={wrong}", "algorithm.server_lr=0.1"
        )
    assert "server_lr" in complaint(write(), "algorithm.server_optimiser=adam")


# --- The key that is wrong ----------------------------------------------------------------------------------------


def test_the_seed_of_the_partition_is_not_the_seed_of_the_run(write):
    assert complaint(write(), "task.partition_seed=-1") == "cfg.toml, --set: [task] partition_seed = -1: use 0 or more"
    path = write(("clients = 20", "clients = 20\npartition_seed = -1"))
    assert complaint(path) == "cfg.toml:4: [task] partition_seed = -1: use 0 or more"


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("mlp:0", "hidden = (0,): give one positive size"),
        ("cnn", "input_shape = (8, 8, 1): cnn takes grey 28 x 28 images"),
        ("resnet20:foo", "norm = 'foo': use 'group' or 'batch'"),
        ("resnet20:batch,foo", "dtype = 'foo': use 'float32'"),
    ],
)
def test_what_a_model_takes_is_said_of_its_name(write, model, says):
    assert complaint(write(), f"task.model={model}").startswith(f"cfg.toml, --set: [task] model = {model!r}: {says}")


def test_an_option_is_not_taken_for_a_part_of_the_model(write):
    path = write(('model = "mlp:8"', "options = { norm = 3 }"))
    assert complaint(path) == "cfg.toml:4: [task.options] norm = 3: digits takes standardize"


def test_another_section_is_named_only_where_the_value_stands_there(write):
    config = load_config(write())
    for field, value, says in (
        ("seed", 0, "cfg.toml:20: [run] seed = 0"),
        ("seed", 5, "cfg.toml: seed = 5"),
        ("epsilon", 8, "cfg.toml:15: [privacy] epsilon = 8"),
        ("local_steps", 1, "cfg.toml:8: [algorithm] local_steps = 1"),  # of the section concerned
    ):
        with pytest.raises(InvalidInput) as caught, config.located("algorithm"):
            raise InvalidInput(field, value, "is wrong")
        assert f"{says}: is wrong" in str(caught.value)

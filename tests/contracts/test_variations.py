"""A file that stands for many runs: which runs, in which order, and what is said of a mistake."""

from __future__ import annotations

import functools

import pytest

from sordino.config import load_config, load_sweep
from sordino.config.sweeps import variations
from sordino.errors import InvalidInput
from tests.toys import RUN_FILE, write_run_file

CONFIG = RUN_FILE.replace("epsilon = 8.0\ndelta = 1e-4", "noise_multiplier = 1.0")


def changes(values, takes_list=lambda section, key: False):
    return [variation.changes for variation in variations(values, takes_list)]


@pytest.fixture
def write(tmp_path):
    return functools.partial(write_run_file, tmp_path, CONFIG)


# --- Which runs ---------------------------------------------------------------------------------------------------


def test_nothing_varies():
    values = {"a": {"x": 1, "y": {"z": 2}}}
    assert [tuple(variation) for variation in variations(values, lambda *_: False)] == [(values, {})]


def test_grids_multiply_the_last_one_fastest():
    got = changes({"a": {"x": {"grid": [1, 2]}}, "b": {"y": {"grid": [3, 4, 5]}}})
    assert got == [{"a.x": x, "b.y": y} for x in (1, 2) for y in (3, 4, 5)]


def test_lists_advance_together():
    assert changes({"a": {"x": [1, 2, 3]}, "b": {"y": [4, 5, 6]}}) == [
        {"a.x": 1, "b.y": 4},
        {"a.x": 2, "b.y": 5},
        {"a.x": 3, "b.y": 6},
    ]


def test_grids_multiply_with_the_rows_of_lists():
    got = changes({"a": {"x": [1, 2], "g": {"grid": ["p", "q"]}}, "b": {"y": [3, 4]}})
    assert got == [{"a.g": g, "a.x": x, "b.y": y} for g in ("p", "q") for x, y in ((1, 3), (2, 4))]


def test_a_grid_inside_a_value():
    values = {"a": {"lr": {"start": {"grid": [0.1, 0.2]}, "decay": 0.99}}}
    runs = variations(values, lambda *_: False)
    assert [run.values for run in runs] == [{"a": {"lr": {"start": start, "decay": 0.99}}} for start in (0.1, 0.2)]
    assert [run.changes for run in runs] == [{"a.lr.start": 0.1}, {"a.lr.start": 0.2}]


def test_a_key_that_takes_a_list_is_varied_by_a_grid_of_lists():
    def takes_list(section, key):
        return (section, key) == ("a", "sizes")

    assert changes({"a": {"sizes": [1, 2]}}, takes_list) == [{}]
    assert changes({"a": {"sizes": {"grid": [[1, 2], [3]]}}}, takes_list) == [{"a.sizes": [1, 2]}, {"a.sizes": [3]}]
    # a list inside a value is the value's own: only its grids vary
    assert changes({"a": {"lr": {"values": [1.0, 0.1], "until": [5]}}}) == [{}]


def test_the_file_is_left_as_it_was():
    values = {"a": {"x": {"grid": [1, 2]}, "y": {"inner": [0]}}}
    first, second = variations(values, lambda *_: False)
    first.values["a"]["y"]["inner"].append(1)
    assert second.values["a"]["y"]["inner"] == [0]
    assert values == {"a": {"x": {"grid": [1, 2]}, "y": {"inner": [0]}}}


# --- In a file ----------------------------------------------------------------------------------------------------


def test_a_sweep_file(write):
    sweep = load_sweep(write(("local_lr = 0.5", "local_lr = { grid = [1, 0.5] }"), ("seed = 0", "seed = [4, 5, 6]")))
    assert sweep.varied == ("algorithm.local_lr", "run.seed")
    got = [(config.file.algorithm.local_lr, config.file.run.seed) for _, config in sweep.points]
    assert got == [(lr, seed) for lr in (1.0, 0.5) for seed in (4, 5, 6)]
    assert all(isinstance(config.file.algorithm.local_lr, float) for _, config in sweep.points)


def test_words_and_structures_may_vary(write):
    sweep = load_sweep(write(("rounds = 3", 'rounds = 3\ncohort = { grid = ["full", "poisson:0.5"] }')))
    assert [str(config.plan().cohort) for _, config in sweep.points] == ["full", "poisson:0.5"]
    sweep = load_sweep(write(("local_lr = 0.5", "local_lr = { grid = [0.5, { start = 0.5, decay = 0.9 }] }")))
    assert [config.file.algorithm.local_lr for _, config in sweep.points] == [0.5, {"start": 0.5, "decay": 0.9}]


def test_a_schedule_with_lists_of_its_own_is_one_run(write):
    path = write(("local_lr = 0.5", "local_lr = { values = [0.5, 0.1], until = [2] }"))
    assert load_sweep(path).varied == ()
    assert float(load_config(path).plan().method.local.lr(2)) == pytest.approx(0.1)


def test_set_with_a_grid_and_with_a_list(write):
    path = write()
    sweep = load_sweep(path, ("bound.clip={grid = [0.5, 1.0]}", "run.seed=[1, 2]"))
    assert [point.values for point in sweep.points] == [
        {"bound.clip": clip, "run.seed": seed} for clip in (0.5, 1.0) for seed in (1, 2)
    ]
    assert "clip = {grid = [0.5, 1.0]}" in sweep.changed  # what a sweep's folder keeps
    assert path.read_text() == CONFIG
    narrowed = load_sweep(write(("seed = 0", "seed = [0, 1]")), ("run.seed=7",))
    assert narrowed.varied == ()
    assert narrowed.points[0].config.file.run.seed == 7


def test_one_run_is_asked_for(write):
    path = write(("seed = 0", "seed = [0, 1]"))
    with pytest.raises(InvalidInput, match=r"cfg\.toml.*holds 2 runs, not one: `sordino run`"):
        load_config(path)
    assert load_config(path, ("run.seed=1",)).file.run.seed == 1


def test_each_data_set_is_read_once(write):
    tasks = load_sweep(write(("clients = 20", "clients = { grid = [5, 10] }"), ("seed = 0", "seed = [0, 1]"))).tasks()
    assert sorted(task.clients for task in tasks.values()) == [5, 10]


MISTAKES = {
    "unequal lists": (
        [("seed = 0", "seed = [0, 1, 2]"), ("local_lr = 0.5", "local_lr = [0.1, 0.2]")],
        [":8: [algorithm] local_lr", "algorithm.local_lr: 2, run.seed: 3", "equally long", "{ grid = [...] }"],
    ),
    "empty list": ([("seed = 0", "seed = []")], [":18: [run] seed = []", "give a list of values"]),
    "empty grid": ([("clip = 1.0", "clip = { grid = [] }")], [":11: [bound] clip = []", "give a list of values"]),
    "grid of one": ([("clip = 1.0", "clip = { grid = 1.0 }")], [":11: [bound] clip = 1.0", "give a list of values"]),
    "empty grid inside": (
        [("local_lr = 0.5", "local_lr = { start = { grid = [] }, decay = 0.9 }")],
        [":8: [algorithm] local_lr.start = []", "give a list of values"],
    ),
    "a name that two sections have": ([('"fedavg"', "[]")], [":6: [algorithm] name = []", "give a list of values"]),
    "one wrong value": ([("seed = 0", 'seed = [0, "one"]')], [":18: [run] seed = 'one'", "must be a whole number"]),
    "a sweep of a key that is not known": (
        [("clip = 1.0", "klip = [1.0, 2.0]")],
        [":11: [bound] klip", "did you mean clip?"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_name_file_line_key_and_remedy(write, name):
    replacements, words = MISTAKES[name]
    path = write(*replacements)
    with pytest.raises(InvalidInput) as caught:
        load_sweep(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_mistake_of_set_does_not_name_a_line_that_is_not_there(write):
    with pytest.raises(InvalidInput) as caught:
        load_sweep(write(), ("algorithm.momentum=[]",))
    assert "None" not in str(caught.value)
    assert "cfg.toml, --set: [algorithm] momentum = []" in str(caught.value)


def test_a_wrong_value_of_one_point_is_found_before_any_runs(write):
    sweep = load_sweep(write(("clip = 1.0", "clip = { grid = [1.0, -1.0] }")))
    sweep.points[0].config.plan()
    with pytest.raises(InvalidInput, match=r"cfg\.toml:11: \[bound\] clip = -1"):
        sweep.points[1].config.plan()

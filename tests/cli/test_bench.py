"""`sordino bench` as a user runs it, on workloads small enough for a test."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from sordino.runs import workloads
from sordino.runs.workloads import WORKLOADS, prepare, random_task

SMALL = {
    name: dataclasses.replace(
        workload, clients=7, records=4, cohort=5, local_steps=2, batch_size=None, run=workload.run and (4, 2)
    )
    for name, workload in WORKLOADS.items()
}


def test_one_workload(run, monkeypatch, tmp_path):
    monkeypatch.setitem(WORKLOADS, "w1", SMALL["w1"])
    keep = "--keep", str(tmp_path / "speed")
    data = json.loads(run("bench", "--workload", "W1", "--json", *keep).stdout)  # in either spelling
    assert data["workload"] == "w1"
    assert (data["model"], data["clients"], data["cohort"], data["parameters"]) == ("logistic", 7, 5, 7850)
    assert data["s_per_round"] > 0
    assert data["loop_s_per_round"] > 0
    assert data["compile_s"] > 0
    assert 20 < data["peak_mib"] < 1e6
    assert data["run_rounds"] == 4
    assert data["rounds_s"] > 0
    assert data["beside_rounds"] == pytest.approx(max(0, 1 - data["rounds_s"] / data["run_s"]))
    monkeypatch.setitem(WORKLOADS, "w1", dataclasses.replace(SMALL["w1"], run=None))
    assert "s_per_round" in run("bench", "--workload", "w1", *keep).stdout
    history = [json.loads(line) for line in (tmp_path / "speed" / "history.jsonl").read_text().splitlines()]
    assert history[0] == data
    assert [row["workload"] for row in history] == ["w1", "w1"]
    assert (tmp_path / "speed" / "history.png").read_bytes().startswith(b"\x89PNG")


def test_every_workload_in_a_process_of_its_own(run, monkeypatch):
    def measured(name, seed):
        return {"workload": name, "what": WORKLOADS[name].what, "seed": seed, "s_per_round": 1.0}

    class InThisProcess:
        def __init__(self, *_, max_tasks_per_child, mp_context):
            assert max_tasks_per_child == 1
            assert mp_context.get_start_method() == "spawn"

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        map = staticmethod(map)

    monkeypatch.setattr("sordino.cli.bench._measured", measured)
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", InThisProcess)
    rows = json.loads(run("bench", "--seed", "3", "--json").stdout)["workloads"]
    assert [(row["workload"], row["seed"]) for row in rows] == [(name, 3) for name in WORKLOADS]
    text = run("bench").stdout
    assert all(workload.what in text for workload in WORKLOADS.values())


def test_a_wrong_workload(run):
    result = run("bench", "--workload", "w4", code=2)
    assert result.stderr == "error: workload = 'w4': use one of w1, w2, w3, tiny\n"
    assert result.stdout == ""


def test_help_says_whose_workloads_they_are(run):
    text = " ".join(run("bench", "--help").stdout.replace("│", " ").split())
    assert "Sordino's own and synthetic" in text
    for name, workload in WORKLOADS.items():
        assert f"{name}: {workload.what}" in text


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n != "tiny" else ()) for n in SMALL])
def test_the_loop_computes_the_round_that_the_engine_computes(name):
    program = prepare(SMALL[name])
    for k in (0, 3):
        engine, loop = program.run(k).server, program.loop(k).server
        np.testing.assert_allclose(engine.w, loop.w, rtol=1e-4, atol=1e-6)
    assert not np.array_equal(program.run(0).server.w, program.run(1).server.w)


def test_records_come_from_the_seed():
    one, same, other = (random_task(SMALL["w1"], seed).data.x for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_rounds_are_timed_after_one_that_is_not(monkeypatch):
    clock = iter(range(1000))
    run, loop = [], []
    program = workloads.Prepared(run.append, loop.append, d=3, chunk=2, compile_seconds=0.5)
    monkeypatch.setattr(workloads, "prepare", lambda *_, **__: program)
    monkeypatch.setattr(workloads.time, "perf_counter", lambda: float(next(clock)))
    found = workloads.measure(SMALL["w3"])
    assert run == loop == list(range(workloads.TIMED + 1))
    assert "beside_rounds" not in found
    assert (found["s_per_round"], found["loop_s_per_round"], found["loop_over_engine"]) == (1.0, 1.0, 1.0)


def test_long_rounds_are_timed_less_often(monkeypatch):
    clock = iter(range(0, 100_000, 15))
    run = []
    program = workloads.Prepared(run.append, lambda k: None, d=3, chunk=2, compile_seconds=0.5)
    monkeypatch.setattr(workloads, "prepare", lambda *_, **__: program)
    monkeypatch.setattr(workloads.time, "perf_counter", lambda: float(next(clock)))
    assert workloads.measure(SMALL["w3"])["s_per_round"] == 15.0
    assert run == [0, 1, 2]

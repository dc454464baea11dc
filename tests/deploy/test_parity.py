"""A deployed study ends with the model of the same run file simulated, and every deployable method is tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import sordino as so
from sordino.algorithms import METHODS
from sordino.config import load_config
from sordino.data import FederatedData
from sordino.deploy.node_study import ANSWERS, Answer
from sordino.deploy.server_study import MODEL
from sordino.deploy.turn import Aggregation
from sordino.errors import InvalidInput
from sordino.models import get
from sordino.planning.deployed import deploy
from sordino.runs.store import model_bytes
from sordino.tasks import Task
from tests.deploy.clinic import CLIENTS, Clinics, records_of
from tests.deploy.ended import study_of_node

NAMES, SIZES = ("east", "north"), (6, 9)
STUDY = """\
[task]
name = "clinics"
model = "{model}"

[algorithm]
name = "{method}"
{algorithm}

[bound]
{bound}

[run]
rounds = {rounds}
seed = 5

[privacy]
mechanism = "none"
"""
LOCAL = "local_steps = 2\nlocal_lr = 0.5"
RECORDS = "lipschitz = 1.0\nradius = 3.0\nsmoothness = 2.0"
FEEDBACK = "beta = 0.5\nserver_lr = 0.3"

DEPLOYED = {
    "fedavg, clipped": ("fedavg", LOCAL, "clip = 0.2"),
    "fedavg, normalised": ("fedavg", LOCAL + "\nserver_lr = 0.5\nserver_momentum = 0.5", "normalize = 0.2"),
    "fedavg, bound that adapts": (
        "fedavg",
        LOCAL,
        "adaptive_clip = { initial = 0.2, indicator_noise_std = 1.0 }",
    ),
    "fedexp": ("fedexp", LOCAL, "clip = 0.2"),
    "scaffold": ("scaffold", LOCAL, "clip = 0.2"),
    "scaffold, extrapolated": ("scaffold", LOCAL + '\nstep_size = "corrected"', "clip = 0.2"),
    "scaffold, update alone": ("scaffold", LOCAL + '\ncontrol = "update"\nremember_noise = true', "clip = 0.2"),
    "noisy_mb_sgd": ("noisy_mb_sgd", RECORDS, ""),
    "noisy_mb_sgd, by size": ("noisy_mb_sgd", RECORDS + '\nweights = "records"', ""),
    "accelerated_mb_sgd": ("accelerated_mb_sgd", RECORDS, ""),
    "error_feedback": ("error_feedback", FEEDBACK, "smoothed_normalize = 0.1"),
    "error_feedback, clipped": ("error_feedback", FEEDBACK + "\nserver_normalization = true", "clip = 0.2"),
    "dp_sgd": ("dp_sgd", "server_lr = 0.5", "clip = 0.2"),
    # An even number: of two classes, both have gradients of equal length.
    "error_feedback, sparse": ("error_feedback", FEEDBACK + "\ntop_k = 4", ""),
}
# Noise between the local steps comes from a simulation's key: no node draws it.
SIMULATED_ONLY = {
    "record_scaffold": (LOCAL, "clip = 0.2"),
}


def text_of(method: str, algorithm: str, bound: str, *, rounds: int = 3, model: str = "mlp:3") -> str:
    return STUDY.format(method=method, algorithm=algorithm, bound=bound, rounds=rounds, model=model)


def same_task(model: str = "mlp:3") -> Task:
    """The records of all nodes as one task of the simulator."""
    parts = records_of(SIZES)
    size = np.array([len(y) for _, y in parts], np.int32)
    x, y = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    start = (np.cumsum(size) - size).astype(np.int32)
    return Task("clinics", FederatedData(x, y, start, size, x, y, 2), get(model, x.shape[1:], 2))


def test_every_method_is_deployed_or_said_to_be_simulated_only() -> None:
    assert {method for method, _, _ in DEPLOYED.values()} | SIMULATED_ONLY.keys() == METHODS.keys()


@pytest.mark.usefixtures("no_power_cuts")
@pytest.mark.parametrize("case", DEPLOYED.values(), ids=DEPLOYED)
def test_a_deployed_study_ends_with_the_simulated_model(case: tuple[str, str, str], tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, NAMES, SIZES, methods=", ".join(f'"{name}"' for name in METHODS))
    clinics.open_all()
    kept = clinics.run(text_of(*case))
    clinics.close()
    config = load_config(tmp_path / "study.toml")
    run = so.simulate(config.plan(), same_task(), seed=config.file.run.seed)
    (tmp_path / "simulated").write_bytes(model_bytes(run.params))
    deployed, simulated = load_file(kept.folder / MODEL), load_file(tmp_path / "simulated")
    first = kept.study.params(kept.study.initial())
    (tmp_path / "first").write_bytes(model_bytes(first))
    moved = max(np.abs(simulated[name] - each).max() for name, each in load_file(tmp_path / "first").items())
    assert moved > 1e-3
    assert deployed.keys() == simulated.keys()
    for name, expected in simulated.items():
        np.testing.assert_allclose(deployed[name], expected, rtol=0, atol=1e-6)


def test_memories_that_follow_noisy_messages_add_up_to_the_servers(tmp_path: Path) -> None:
    """g is the mean of the g_i only where a node adds to its memory what the server has read, noise included."""
    private = 'trust = "local"\nepsilon = 8.0\ndelta = 1e-3'
    feedback = text_of("error_feedback", FEEDBACK + "\nremember_noise = true", "clip = 0.2")
    clinics = Clinics(tmp_path, NAMES, SIZES, **CLIENTS)
    clinics.open_all()
    kept = clinics.run(feedback.replace('mechanism = "none"', private))
    clinics.close()
    memories = [
        Answer.read(max((study_of_node(clinics, kept, name) / ANSWERS).glob("*.npz"))).state[0] for name in NAMES
    ]
    state = Aggregation(kept.study).restored(kept.leaves)
    assert np.abs(state.g).max() > 0.1
    np.testing.assert_allclose(state.g, np.mean(memories, axis=0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", SIMULATED_ONLY)
def test_a_method_that_only_a_simulation_can_run_is_refused(method: str, tmp_path: Path) -> None:
    algorithm, bound = SIMULATED_ONLY[method]
    path = tmp_path / "study.toml"
    path.write_text(
        text_of(method, algorithm, bound).replace('mechanism = "none"', 'trust = "local"\nepsilon = 4.0\ndelta = 1e-3')
    )
    with pytest.raises(InvalidInput, match="algorithm"):
        deploy(load_config(path).plan().resolve(same_task().population))

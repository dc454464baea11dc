"""A process that computes otherwise than the proofs of sums and norms assume runs nothing private."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from sordino.rounds.arithmetic import CHECKS, require_sound_arithmetic

TRY = """\
import json
import sordino as so
from sordino.errors import SordinoError
from sordino.rounds.arithmetic import CHECKS
from sordino.rounds.auditing import audit_release
from tests.toys import toy

def refused(work):
    try:
        work()
    except SordinoError as error:
        return str(error)

task = toy()
method = so.fedavg(local_steps=1, local_lr=0.5, bound=so.clip(1.0))
private = so.plan(method, rounds=1, epsilon=8.0, delta=1e-3)
sgd = so.noisy_mb_sgd(step_size=0.1, lipschitz=1.0, batch_size=1, radius=5.0, smoothness=1.0)
of_records = so.plan(sgd, rounds=1, epsilon=8.0, delta=1e-3, trust="local")
print(json.dumps({
    "checks": {name: check() for name, check in CHECKS.items()},
    "private": refused(lambda: so.simulate(private, task)),
    "records": refused(lambda: so.simulate(of_records, task)),
    "audit": refused(lambda: audit_release(private, private.resolve(task.population), task.d, trials=100)),
    "not private": refused(lambda: so.simulate(so.plan(method, rounds=1), task)),
}))
"""


def test_this_process_computes_as_proven():
    assert all(check() for check in CHECKS.values())
    require_sound_arithmetic()


def test_fast_math_is_refused_where_something_private_would_run():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_enable_fast_math=true"
    environment, root = os.environ | {"XLA_FLAGS": flags}, Path(__file__).parents[2]
    command = [sys.executable, "-c", TRY]
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    # The flag really takes the compensation away; otherwise this shows nothing.
    assert not found["checks"]["two-sums"]
    assert not found["checks"]["running sums"]
    assert found["not private"] is None
    for private in ("private", "records", "audit"):
        assert "XLA_FLAGS" in found[private]
        assert "remove" in found[private]

"""What the error-feedback family promises, warns of and refuses; one program for all its numbers."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.algorithms.local import ClientData
from sordino.data import FederatedData, robust_loss, robust_regression
from sordino.data.augmentation import crop, crop_flip, flip
from sordino.errors import InvalidInput, Refused
from sordino.models import Batch, get
from sordino.planning import Rules, parse_cohort
from sordino.privacy.ledger import read_ledger
from sordino.rounds import ProgramSpec, run_rounds
from sordino.rounds.engine import run_round
from sordino.tasks import Population, Task
from sordino.types import Memory, Observer, PlanContext, Trust
from tests.toys import rounds_of, rules_for, states_of


def method(**options):
    usual = {"beta": 0.1, "server_lr": 0.1, "bound": so.smoothed_normalize(0.2)}
    return so.error_feedback(**(usual | options))


def resolved(ours, clients=10, **options):
    options = {"rounds": 20, "noise_multiplier": 4.0, "trust": "local", "delta": 1e-5} | options
    return so.plan(ours, **options).resolve(Population(50, clients))


def codes(certificate):
    return [warning.code for warning in certificate.warnings]


# --- Warnings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "beta", "expected"),
    [
        (0.2, 0.1, []),
        (0.2, 0.2, ["beta-above-alpha-plus-R"]),
        (0.1, 0.2, ["beta-above-alpha-plus-R"]),
        (0.09, 0.2, ["beta-above-2-alpha", "beta-above-alpha-plus-R"]),
        (0.0, 0.2, ["beta-above-2-alpha", "beta-above-alpha-plus-R"]),
    ],
)
def test_warnings_stand_in_the_certificate(alpha, beta, expected):
    certificate = resolved(method(bound=so.smoothed_normalize(alpha), beta=beta)).certificate
    assert [code for code in codes(certificate) if code.startswith("beta")] == expected


def test_the_warning_is_true():
    """beta > 2 alpha: a constant gradient is never met, the memory ends in a 2-cycle beta/2 - alpha away from it."""
    for alpha, beta, size in ((0.01, 0.1, 0.04), (0.1, 0.1, 0.0)):
        ours, memory, target = method(bound=so.smoothed_normalize(alpha), beta=beta), jnp.zeros(1), 1.0
        residuals = []
        for _ in range(200):
            Delta, _ = ours.bound(target - memory)
            memory = memory + beta * Delta
            residuals.append(float(target - memory[0]))
        assert np.abs(residuals[-6:]) == pytest.approx(size, abs=1e-3)


@pytest.mark.parametrize(
    ("bound", "name", "size"), [(so.smoothed_normalize(0.0), "beta", 0.1), (so.normalize(5.0), "beta C", 0.5)]
)
@pytest.mark.parametrize("target", [1.0, 1.03, -0.77])
def test_plain_normalization_ends_in_a_cycle_that_depends_on_the_start(bound, name, size, target):
    """So that no distance is named, only how far it is at most."""
    ours, memory, residuals = method(bound=bound, beta=0.1), jnp.zeros(1), []
    for _ in range(200):
        Delta, _ = ours.bound(target - memory)
        memory = memory + 0.1 * Delta
        residuals.append(float(target - memory[0]))
    assert np.max(np.abs(residuals[-6:])) <= size * (1 + 1e-4)
    (text,) = (warning.message for warning in ours.warnings() if warning.code == "beta-above-2-alpha")
    assert text.startswith(f"{name} = {size:g} is above 2 alpha = 0:")
    assert f"within {name} of its gradient" in text


@pytest.mark.parametrize("options", [{"bound": so.clip(1.0)}, {"bound": None, "top_k": 3}])
def test_what_lets_short_differences_pass_warns_of_beta_from_two_on(options):
    trust = (
        {"trust": "local"} if options["bound"] else {"noise_multiplier": None, "mechanism": "none", "trust": "central"}
    )
    assert "beta-too-large" in codes(resolved(method(**options, beta=2.0), **trust).certificate)
    assert "beta-too-large" not in codes(resolved(method(**options, beta=1.9), **trust).certificate)


def test_from_two_on_a_memory_runs_away():
    ours, residuals = method(bound=None, top_k=1, beta=2.5), []
    memory = jnp.zeros(1)
    for _ in range(20):
        Delta, _ = ours.psi(1.0 - memory)
        memory = memory + 2.5 * Delta
        residuals.append(abs(float(1.0 - memory[0])))
    assert residuals[-1] > 1000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"memory": "noisy", "memory_clip": 1.0, "memory_rounds": 20}, "memory_rounds = 20: all 20 rounds"),
        ({"top_k": 51}, "top_k = 51: there are only 50 coordinates"),
    ],
)
def test_what_a_plan_can_tell_is_refused_before_anything_is_spent(options, says):
    with pytest.raises(InvalidInput, match=says):
        resolved(method(**options))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"memory": "noisy", "memory_clip": -1.0}, "memory_clip = -1.0"),
        ({"top_k": 1.5}, "top_k = 1.5: must be a whole number"),
        ({"memory": "noisy", "memory_clip": 1.0, "memory_rounds": 1.5}, "memory_rounds = 1.5: must be a whole number"),
    ],
)
def test_what_is_wrong_is_called_by_its_name(options, says):
    with pytest.raises(InvalidInput, match=says):
        method(**options)


# --- Memory and guarantees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "memory"),
    [
        ({}, Memory.ZERO),
        ({"memory": "noisy", "memory_clip": 1.0}, Memory.NOISY),
        ({"memory": "secure-average", "memory_clip": 1.0}, Memory.NOISY),
        ({"memory": "exact"}, Memory.EXACT),
    ],
)
def test_memory_is_declared(options, memory):
    assert method(**options).privacy.memory is memory


@pytest.mark.parametrize("trust", ["central", "local"])
def test_the_exact_start_is_refused_in_private_and_runs_otherwise(trust):
    ours = method(memory="exact")
    with pytest.raises(Refused, match="exact gradient"):
        resolved(ours, trust=trust)
    assert not resolved(ours, noise_multiplier=None, trust="central").certificate.total(Observer.SERVER).private


def test_a_noisy_start_is_a_release_like_every_other(tmp_path):
    """Its rounds are among those of the certificate and of the ledger: certify finds the planned figure."""
    task = so.task("robust-regression", clients=4, d=3, records=5)
    ours = method(memory="noisy", memory_clip=1.0, memory_rounds=2)
    plan = so.plan(ours, rounds=6, noise_multiplier=4.0, trust="local", delta=1e-5)
    run = so.simulate(plan, task, seed=0, folder=tmp_path / "run", evaluate_every=3)
    record = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert record.rounds(Observer.SERVER) == 6
    spent = so.epsilon_of(record.spent(Observer.SERVER), 1e-5, record.relation)
    assert spent == pytest.approx(run.certificate.total(Observer.SERVER).epsilon)


def test_the_secure_average_is_certified_for_the_average_only():
    certificate = resolved(method(memory="secure-average", memory_clip=1.0)).certificate
    plain = resolved(method()).certificate
    server, user = (certificate.total(who) for who in (Observer.SERVER, Observer.MODEL_USER))
    assert any("secure aggregation" in text for text in server.assumptions)
    assert any("every other client" in text for text in server.assumptions)
    # The first sum moves by sqrt(n) bounds, so a model user gains nothing from the noise of the others.
    assert user.epsilon == server.epsilon == plain.total(Observer.SERVER).epsilon
    assert plain.total(Observer.MODEL_USER).epsilon < user.epsilon


@pytest.mark.parametrize(
    "options",
    [{"trust": "central"}, {"cohort": "poisson:0.5"}, {"mechanism": "laplace", "delta": 1e-5}],
    ids=["central", "poisson", "laplace"],
)
def test_the_secure_average_needs_gaussian_noise_of_all_clients(options):
    with pytest.raises(InvalidInput, match="secure-average"):
        resolved(method(memory="secure-average", memory_clip=1.0), **options)


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, (1.0, 1.0)),
        ({"memory": "noisy", "memory_clip": 5.0}, (1.0, 1.0)),
        ({"memory": "secure-average", "memory_clip": 5.0}, (3.0, 1.0)),
        ({"memory": "exact"}, (1e30, 1.0)),
    ],
    ids=["zero", "noisy", "secure-average", "exact"],
)
def test_the_limit_of_a_message_is_that_of_its_round(options, limits):
    """Nine clients: a first message of the secure average may have norm sqrt(9) Phi, and a long gradient has."""
    ours = method(**options).resolve(PlanContext(50, clients=9, planned_cohort=9.0, rounds=20))
    server = ours.init_server(jnp.zeros(4))
    long = ClientData.own(lambda w, batch: 1e3 * jnp.sum(w), jnp.zeros((1, 1)), jnp.zeros(1))
    for k, limit in enumerate(limits):
        received = ours.broadcast(server._replace(k=jnp.int32(k)))
        assert float(ours.limit(received, None)) == pytest.approx(limit, rel=2e-6)
        message, *_ = ours.client(jax.random.key(0), received, jnp.zeros(4), long)
        assert float(jnp.linalg.norm(message.vector)) == pytest.approx(min(limit, 2e3), rel=1e-3)


def test_remembered_noise_is_promised_to_the_server_alone():
    certificate, plain = (resolved(method(remember_noise=remember)).certificate for remember in (True, False))
    server, user = (certificate.total(who) for who in (Observer.SERVER, Observer.MODEL_USER))
    assert user.epsilon == server.epsilon == plain.total(Observer.SERVER).epsilon
    assert user.assumptions == ()
    assert plain.total(Observer.MODEL_USER).epsilon < user.epsilon


def test_a_method_that_begins_to_remember_when_it_is_resolved_gains_nothing_either():
    class Late(type(method())):
        """What runs is the resolved method, so that is what the plan looks at."""

        def resolve(self, context):
            return dataclasses.replace(method(), remembers_noise=True)

    ours = method()
    late = Late(**{field.name: getattr(ours, field.name) for field in dataclasses.fields(ours)})
    certificate = resolved(late).certificate
    assert certificate.total(Observer.MODEL_USER).epsilon == certificate.total(Observer.SERVER).epsilon


def test_noise_that_a_client_does_not_add_cannot_be_remembered():
    with pytest.raises(InvalidInput, match=r"trust = 'central'.*remember_noise"):
        resolved(method(remember_noise=True), trust="central")
    with pytest.raises(InvalidInput, match="remember_noise"):
        method(remember_noise=True, memory="secure-average", memory_clip=1.0)


def test_clients_that_come_by_chance_amplify_for_model_users_only():
    sampled = resolved(method(), clients=100, cohort="poisson:0.1", trust="central", noise_multiplier=1.0).certificate
    full = resolved(method(), clients=100, trust="central", noise_multiplier=1.0).certificate
    assert sampled.total(Observer.MODEL_USER).epsilon < full.total(Observer.MODEL_USER).epsilon / 3
    assert not sampled.total(Observer.SERVER).private


def test_ef21_alone_has_no_bound_and_is_not_private():
    with pytest.raises(InvalidInput, match="needs a bound"):
        resolved(method(bound=None, top_k=3))
    assert not resolved(method(bound=None, top_k=3), noise_multiplier=None).certificate.total(Observer.SERVER).private


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"beta": 0.0}, "beta"),
        ({"bound": None}, "bound"),
        ({"bound": so.adaptive_clip(1.0, indicator_noise_std=1.0)}, "bound"),
        ({"top_k": 0}, "top_k"),
        ({"memory": "warm"}, "memory"),
        ({"memory": "noisy"}, "memory_clip"),
        ({"memory_clip": 1.0}, "memory_clip"),
        ({"memory_rounds": 2}, "memory_rounds"),
        ({"memory": "noisy", "memory_clip": 1.0, "memory_rounds": 0}, "memory_rounds"),
        ({"local_steps": 2}, "local_lr"),
        ({"local_lr": 0.1}, "local_lr"),
        ({"local_steps": 0}, "local_steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"server_lr": -1.0}, "server_lr"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_names_its_field(options, field):
    with pytest.raises(InvalidInput) as caught:
        method(**options)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"calibration": "norm-ec", "trust": "local", "noise_multiplier": 1.0}, "calibration"),
        ({"calibration": "norm-ec", "epsilon": 8.0, "delta": 1e-5}, "trust"),
        ({"calibration": "best", "epsilon": 8.0, "delta": 1e-5}, "calibration"),
    ],
    ids=["without epsilon", "central", "unknown"],
)
def test_calibrations_that_cannot_be_meant(options, field):
    with pytest.raises(InvalidInput) as caught:
        so.plan(method(), rounds=3, **options)
    assert caught.value.field == field


# --- One program, shared weights ---------------------------------------------------------------------------------


def after_two_rounds(rules: Rules, task: Task) -> jax.Array:
    """x after two rounds with local noise."""
    w = task.initial(jax.random.key(0))
    state, _ = rounds_of(rules, task.records, task.loss, w, 2, seed=1)
    return rules.method.params(state.server)


@pytest.mark.parametrize("bound", [so.smoothed_normalize, so.clip], ids=["alpha", "clip"])
def test_a_grid_is_one_program(bound):
    """beta, gamma, alpha or the clip, and the noise are traced: a vmap over all equals one by one, compiled once."""
    task = so.task("robust-regression", clients=6, d=4, records=3)
    grid = [(0.1, 0.2, 0.3, 0.01), (0.5, 0.1, 1.0, 0.1), (1.0, 0.3, 0.01, 0.0)]

    def rules(beta, gamma, alpha, noise_std):
        ours = so.error_feedback(beta=beta, server_lr=gamma, bound=bound(alpha))
        return rules_for(ours, task.clients, Trust.LOCAL, so.gaussian(noise_std))

    points = [rules(*point) for point in grid]
    alone = [np.asarray(after_two_rounds(point, task)) for point in points]
    before = run_rounds._cache_size()
    after_two_rounds(rules(0.7, 0.7, 0.7, 0.7), task)
    assert run_rounds._cache_size() == before
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.float32(leaf) for leaf in leaves]), *points)
    together = jax.vmap(lambda point: after_two_rounds(point, task))(stacked)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert np.abs(np.diff(np.asarray(alone), axis=0)).max() > 1e-3


def batched_products(jaxpr) -> int:
    """Products of matrices (not of vectors) with a batch axis, wherever in a program they stand."""
    count = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general" and equation.params["dimension_numbers"][1][0]:
            count += all(operand.aval.ndim >= 3 for operand in equation.invars)
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    count += batched_products(inner)
    return count


@pytest.mark.parametrize(
    ("ours", "shared"),
    [
        (so.error_feedback(beta=0.1, server_lr=0.1, bound=so.smoothed_normalize(0.1)), True),
        (so.dp_sgd(server_lr=0.1, bound=so.clip(1.0)), True),
        (so.fedavg(local_steps=1, local_lr=0.1), True),
        (so.fedavg(local_steps=2, local_lr=0.1), False),
    ],
    ids=["error feedback", "DP-SGD", "FedAvg, one step", "FedAvg, two steps"],
)
def test_gradients_at_one_point_share_the_weights(ours, shared):
    """All clients at the same w: only the gradients of the four weight matrices are products client by client."""
    model = get("mlp:12,11,9", (28, 28), 10)  # a convolution repeats its small kernel instead: tests/parity
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 28, 28)).astype(np.float32), np.arange(6, dtype=np.int32)
    start, size = np.array([0, 2, 4], np.int32), np.full(3, 2, np.int32)
    task = Task("toy", FederatedData(x, y, start, size, x, y, 10), model)
    spec = ProgramSpec(task.loss, parse_cohort("full"), population=3, largest=2, chunk=3)
    state = states_of(ours, task.initial(jax.random.key(0)), 3)

    def program(state):
        return run_round(rules_for(ours, 3), task.records, state, jax.random.key(1), jnp.int32(0), spec)

    found = batched_products(jax.make_jaxpr(program)(state).jaxpr)
    assert (found == 4) is shared


# --- Augmentation ------------------------------------------------------------------------------------------------


def test_crop_flip_moves_and_mirrors_and_adds_nothing():
    image = jnp.arange(1.0, 65.0).reshape(1, 8, 8, 1)
    seen = jax.vmap(lambda key: crop_flip(key, image)[0, :, :, 0])(jax.random.split(jax.random.key(0), 400))
    whole = np.asarray(image[0, :, :, 0])
    padded = np.pad(whole, 4)
    allowed = {
        crop.tobytes()
        for a in range(9)
        for b in range(9)
        for crop in (padded[a : a + 8, b : b + 8].copy(), padded[a : a + 8, b : b + 8][:, ::-1].copy())
    }
    got = {np.asarray(one, np.float32).tobytes() for one in seen}
    assert got <= allowed
    assert len(got) > 130  # of 162
    assert crop_flip(jax.random.key(1), jnp.ones((3, 32, 32, 3))).shape == (3, 32, 32, 3)


def test_crop_moves_every_image_by_an_offset_of_its_own():
    image = jnp.arange(1.0, 65.0).reshape(8, 8, 1)
    padded = np.pad(np.asarray(image[:, :, 0]), 4)
    allowed = {padded[a : a + 8, b : b + 8].tobytes() for a in range(9) for b in range(9)}
    got = {np.asarray(one[:, :, 0]).tobytes() for one in crop(jax.random.key(0), jnp.stack([image] * 400))}
    assert got <= allowed
    assert len(got) > 70  # of 81


def test_what_a_shift_brings_in_is_black():
    """Of standardised images that is not 0, which would be the mean colour."""
    task = so.task("digits", clients=5, augment="crop")
    x = jnp.asarray(task.data.x[:50])
    changed = task.augment(jax.random.key(0), x)
    black = (0 - 0.3058) / 0.3764
    np.testing.assert_allclose(jnp.min(changed), black, rtol=1e-6)
    assert not np.any(np.isclose(changed, 0.0, atol=1e-6))
    raw = so.task("digits", clients=5, augment="crop", standardize=False)
    assert jnp.min(raw.augment(jax.random.key(0), jnp.asarray(raw.data.x[:50]))) == 0


def test_every_channel_has_its_own_black():
    image = jnp.ones((400, 8, 8, 3))
    seen = np.asarray(crop(jax.random.key(0), image, (-1.0, -2.0, -3.0)))
    brought_in = seen[np.any(seen != 1, axis=-1)]
    assert len(brought_in) > 0
    np.testing.assert_array_equal(brought_in, np.tile([-1.0, -2.0, -3.0], (len(brought_in), 1)))


def test_flip_mirrors_every_other_image():
    images = jnp.arange(64.0 * 400).reshape(400, 8, 8, 1)
    seen = flip(jax.random.key(0), images)
    mirrored = np.asarray([bool(jnp.array_equal(new, old[:, ::-1])) for new, old in zip(seen, images, strict=True)])
    kept = np.asarray([bool(jnp.array_equal(new, old)) for new, old in zip(seen, images, strict=True)])
    assert np.all(mirrored != kept)
    assert 160 < mirrored.sum() < 240


def test_augmentation_is_the_clients_own_and_new_in_every_round():
    """Two clients hold the same image: they see it differently, and differently in the next round."""
    x = jnp.tile(jnp.arange(64.0).reshape(1, 8, 8, 1), (2, 1, 1, 1))

    def seen(w, batch):  # the gradient shows what the client saw
        return jnp.vdot(w, batch.x.ravel())

    ours = so.dp_sgd(server_lr=1.0)
    shown = [
        np.asarray(
            ours.client(
                jax.random.fold_in(jax.random.key(k), client),
                ours.broadcast(ours.init_server(jnp.zeros(64))),
                (),
                ClientData(seen, x, jnp.zeros(2), jnp.int32(client), jnp.int32(1), 1, augment=crop_flip),
            )[0].vector
        )
        for k in (0, 1)
        for client in (0, 1)
    ]
    assert len({one.tobytes() for one in shown}) == 4


def test_a_task_augments_by_name():
    assert so.task("digits", clients=5, augment="crop-flip").augment.func is crop_flip
    assert so.task("digits", clients=5, augment="crop").augment.func is crop
    assert so.task("digits", clients=5, augment="flip").augment.func is flip
    assert so.task("digits", clients=5, augment="none").augment is None
    with pytest.raises(InvalidInput, match="crop-flip"):
        so.task("digits", clients=5, augment="mixup")


def test_robust_regression_is_as_smooth_as_it_says():
    """No pair of points has gradients further apart than L_i allows; and it is not convex."""
    problem = robust_regression(0, n=3, d=4, records=10)

    def f(w, i):
        each = jax.vmap(lambda x, y: robust_loss(w, (x, y), 0.1))(jnp.asarray(problem.x[i]), jnp.asarray(problem.y[i]))
        return jnp.mean(each)

    points = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32) * np.repeat([0.3, 1.0, 3.0], 20)[:, None]
    points = jnp.asarray(points, jnp.float32)
    hessians = [jax.jit(jax.vmap(jax.hessian(lambda w, i=i: f(w, i))))(points) for i in range(3)]
    eigenvalues = np.linalg.eigvalsh(np.stack(hessians))  # [clients, points, d]
    assert (np.abs(eigenvalues).max(axis=(1, 2)) <= problem.smoothness).all()
    assert np.min(eigenvalues) < -0.01
    task = so.task("robust-regression", clients=3, d=4, records=10)
    w = task.initial(jax.random.key(0))
    mean = sum(f(w, i) for i in range(3)) / 3
    assert task.evaluate(w)["test_loss"] == pytest.approx(float(mean), rel=1e-5)
    gradient = jax.grad(lambda w: sum(f(w, i) for i in range(3)) / 3)(w)
    assert task.evaluate(w)["gradient_norm"] == pytest.approx(float(jnp.linalg.norm(gradient)), rel=1e-4)
    assert isinstance(task.loss(w, Batch(task.records.x, task.records.y, jnp.ones(30))), jax.Array)

"""Federated problems with known minimisers, and one problem that is smooth and not convex.

The first axis of each array is the client, so `jax.vmap(loss, in_axes=(None, 0))(w, clients)` are the losses of all
clients; the global objective is their mean. The losses use only operators, so they take NumPy and JAX arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInput, require

Array = NDArray[np.float64]
AnyArray: TypeAlias = Any  # of NumPy or of JAX


class Quadratics(NamedTuple):
    """f_i(w) = 1/2 (w - w_i*)^T Q_i (w - w_i*) with Q_i = A_i A_i^T."""

    A: Array  # [n, d, rank]
    centers: Array  # w_i*, [n, d]
    minimiser: Array  # w* of the mean of the f_i, [d]
    minimum: float  # f(w*)

    @property
    def clients(self) -> tuple[Array, Array]:  # as `quadratic_loss` takes them
        return self.A, self.centers


def quadratic_loss(w: AnyArray, client: tuple[AnyArray, AnyArray]) -> AnyArray:
    """f_i(w) for client = (A_i, w_i*)."""
    A, center = client
    residual = (w - center) @ A
    return 0.5 * (residual @ residual)


def quadratics(seed: int, n: int = 100, d: int = 200, rank: int = 20) -> Quadratics:
    """Das, Hashemi, Sanghavi and Dhillon, "On the Convergence of DP Federated Learning ...", Section 5.3.

    w_i* ~ N(0, I_d); Q_i = A_i A_i^T, where A_i is d x rank with entries from N(0, 1 / rank^2), in the paper 200 x 20.
    """
    require(n * rank >= d, "n", n, f"n times rank must be at least d = {d} for a unique minimiser: raise n or rank")
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((n, d))
    A = rng.standard_normal((n, d, rank)) / rank
    return _with_minimiser(A, centers)


def opposed_parabolas() -> Quadratics:
    """Example 1 of alpha-NormEC: f_1(x) = (x - 3)^2 / 2 and f_2(x) = (x + 3)^2 / 2, least at x = 0.

    Normalised gradient descent without error feedback stays at x = 2, where the unit gradients cancel.
    """
    return _with_minimiser(np.ones((2, 1, 1)), np.array([[3.0], [-3.0]]))


def _with_minimiser(A: Array, centers: Array) -> Quadratics:
    """Solve sum_i Q_i (w - w_i*) = 0."""
    total_Q = np.einsum("ndr,ner->de", A, A)
    pull = np.einsum("ndr,nr->d", A, np.einsum("ndr,nd->nr", A, centers))
    w = np.linalg.solve(total_Q, pull)
    minimum = np.mean([quadratic_loss(w, client) for client in zip(A, centers, strict=True)])
    return Quadratics(A, centers, w, float(minimum))


class LinearRegression(NamedTuple):
    """f_i(w) = (x_i^T w - y_i)^2, one record for each client; y_i = x_i^T w*, so every f_i is zero at w*."""

    x: Array  # [M, d]
    y: Array  # [M]
    minimiser: Array  # w*, [d]; unique if M >= d
    minimum: float

    @property
    def clients(self) -> tuple[Array, Array]:  # as `squared_residual` takes them
        return self.x, self.y


def squared_residual(w: AnyArray, client: tuple[AnyArray, AnyArray]) -> AnyArray:
    """f_i(w) for client = (x_i, y_i)."""
    x, y = client
    return (x @ w - y) ** 2


def linear_regression(seed: int, M: int = 1000, d: int = 500, u_variance: float = 0.1) -> LinearRegression:
    """Takakura et al., "DP-FedEXP", Appendix G: d = 500 with central privacy, 100 with local.

    w* ~ N(0, I_d); x_i ~ N(m_i, I_d), where the d entries of m_i are N(u_i, 1) and the number u_i ~ N(0, 0.1), as in Li
    et al. (2020). The paper does not say whether 0.1 is a variance or a deviation; here it is a variance, and
    u_variance=0.01 is the other reading.
    """
    rng = np.random.default_rng(seed)
    minimiser = rng.standard_normal(d)
    u = np.sqrt(u_variance) * rng.standard_normal((M, 1))
    m = u + rng.standard_normal((M, d))
    x = m + rng.standard_normal((M, d))
    return LinearRegression(x, x @ minimiser, minimiser, 0.0)


class RobustRegression(NamedTuple):
    """f_i(w) = mean_j l(x_ij^T w - y_ij) + lambda sum_l l(w_l) with l(t) = t^2 / (1 + t^2): smooth, not convex, f >= 0.

    This is the loss of Geman and McClure, which is robust to outliers. 0 is a lower bound; the minimum is not known.
    """

    x: Array  # [n, records, d]
    y: Array  # [n, records]
    regularisation: float  # lambda

    @property
    def smoothness(self) -> Array:
        """L_i <= 2 ||X_i||^2 / records + 2 lambda, [n], since |l''| <= 2; their mean bounds that of the mean f."""
        norms: Array = np.linalg.norm(self.x, ord=2, axis=(1, 2))
        return 2 * norms**2 / self.x.shape[1] + 2 * self.regularisation


def robust_loss(w: AnyArray, record: tuple[AnyArray, AnyArray], regularisation: float) -> AnyArray:
    """The loss of one record (x, y), the regulariser included."""
    x, y = record
    squared = (x @ w - y) ** 2
    return squared / (1 + squared) + regularisation * (w**2 / (1 + w**2)).sum()


def robust_regression(
    seed: int, n: int = 10, d: int = 20, records: int = 50, regularisation: float = 0.1
) -> RobustRegression:
    """Heterogeneous clients: x ~ N(0, I_d / d), y = x^T w_i + N(0, 1/100), w_i ~ w + N(0, I_d), w ~ N(0, I_d).

    One target in ten is an outlier, N(0, 25).
    """
    require(regularisation >= 0, "regularisation", regularisation, "must not be negative")
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(d) + rng.standard_normal((n, d))
    x = rng.standard_normal((n, records, d)) / np.sqrt(d)
    outlier = rng.uniform(size=(n, records)) < 0.1
    noise = np.where(outlier, 5.0, 0.1) * rng.standard_normal((n, records))
    return RobustRegression(x, np.einsum("nrd,nd->nr", x, truth) + noise, regularisation)


class LinearProblem(NamedTuple):
    """F(w) = mean over clients and their records of phi(<w, x>, y) + (l2/2) ||w||^2, with ||x|| = 1."""

    x: Array  # [M, n, d]
    y: Array  # [M, n]
    minimiser: Array  # [d]
    minimum: float
    truth: Array  # [d], the unit vector that all clients share


def linear_problem(
    seed: int, M: int, n: int, d: int, loss: str = "ridge", *, l2: float = 0.0, spread: float = 0.0, noise: float = 0.1
) -> LinearProblem:
    """M clients with n records each, x uniform on the sphere, and the minimiser of their empirical objective.

    ridge and absolute: y = <w_i, x> + noise N(0, 1); logit and hinge: y = sign of that. w_i is a unit vector that all
    clients share, plus `spread` times a unit vector of client i. phi is (s - y)^2 / 2, log(1 + e^(-y s)), |s - y| or
    max(0, 1 - y s); the last two are minimised as linear programs and take no l2.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((M, n, d))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    w = rng.standard_normal(d)
    own = rng.standard_normal((M, d))
    truth = w / np.linalg.norm(w)
    w_i = truth + spread * own / np.linalg.norm(own, axis=1, keepdims=True)
    y = np.einsum("mnd,md->mn", x, w_i) + noise * rng.standard_normal((M, n))
    if loss in ("logit", "hinge"):
        y = np.where(y >= 0, 1.0, -1.0)
    minimiser, minimum = _minimise(x.reshape(-1, d), y.ravel(), loss, l2)
    return LinearProblem(x, y, minimiser, minimum, truth)


def _minimise(x: Array, y: Array, loss: str, l2: float) -> tuple[Array, float]:
    n, d = x.shape
    if loss == "ridge":
        w = np.linalg.solve(x.T @ x / n + l2 * np.eye(d), x.T @ y / n)
        return w, float(np.mean((x @ w - y) ** 2) / 2 + l2 / 2 * w @ w)
    if loss == "logit":
        require(l2 > 0, "l2", l2, "separable labels have no minimiser without a regulariser: give l2 > 0")
        w = np.zeros(d)
        for _ in range(50):  # Newton's method; about ten steps are enough
            p = 1 / (1 + np.exp(y * (x @ w)))
            gradient = -x.T @ (p * y) / n + l2 * w
            w = w - np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x / n + l2 * np.eye(d), gradient)
        return w, float(np.mean(np.logaddexp(0, -y * (x @ w))) + l2 / 2 * w @ w)
    if loss in ("absolute", "hinge"):
        remedy = f"the minimiser of the {loss} loss is known only without a regulariser: leave it out"
        require(l2 == 0, "l2", l2, remedy)
        return _linear_program(x, y, loss)
    raise InvalidInput("loss", loss, "use one of ridge, logit, absolute, hinge")


def _linear_program(x: Array, y: Array, loss: str) -> tuple[Array, float]:
    """Solve the dual, with d equations: |r| is the maximum of u r over |u| <= 1, max(0, m) that of u m over [0, 1].

    absolute  max -<u, y> over |u_i| <= 1/n with sum u_i x_i = 0
    hinge     max sum u_i over 0 <= u_i <= 1/n with sum u_i y_i x_i = 0
    """
    from scipy.optimize import linprog

    n = len(y)
    cost, equations, low = (y, x.T, -1 / n) if loss == "absolute" else (-np.ones(n), (x * y[:, None]).T, 0.0)
    found = linprog(cost, A_eq=equations, b_eq=np.zeros(x.shape[1]), bounds=(low, 1 / n), method="highs")
    if found.fun is None:
        raise InvalidInput("loss", loss, f"no minimiser was found: {found.message}")
    w, minimum = found.eqlin.marginals, -float(found.fun)

    def primal(w: Array) -> float:
        return float(np.mean(np.abs(x @ w - y) if loss == "absolute" else np.maximum(0, 1 - y * (x @ w))))

    w = min(w, -w, key=primal)
    accurate = abs(primal(w) - minimum) < 1e-6
    require(accurate, "loss", loss, "the linear program was not solved accurately: change the data")
    return np.asarray(w), minimum

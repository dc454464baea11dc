"""Definition 4 and Algorithm 3 of paper 2, by enumeration of all that a client can send."""

from __future__ import annotations

import itertools
import math
from functools import reduce

import numpy as np
import pytest

from sordino.errors import InvalidInput
from sordino.privacy.audit import exact_epsilon
from sordino.privacy.compositional import Compositional, algorithm_3, algorithm_3_laws, compositionality
from sordino.privacy.events import Gaussian, Pure
from sordino.types import Relation


def joint(rounds):
    return reduce(np.multiply.outer, [np.asarray(law) for law in rounds]).ravel()


@pytest.mark.parametrize(("d", "epsilon"), [(2, 0.5), (3, 1.0), (4, 2.0)])
def test_algorithm_3_with_a_uniform_element_has_its_figures(d, epsilon):
    laws, said = algorithm_3_laws(d, epsilon), algorithm_3(d, epsilon)
    pairs = list(itertools.combinations(range(d), 2))
    assert max(exact_epsilon(joint(laws[x]), joint(laws[y]), 0.0) for x, y in pairs) == pytest.approx(epsilon)
    for r in range(d):
        of_round = max(exact_epsilon(laws[x][r], laws[y][r], 0.0) for x, y in pairs)
        assert of_round == pytest.approx(said.of_rounds[r])


def test_no_constant_serves_every_d():
    constants = [algorithm_3(d, 1.0).constant for d in (10, 100, 1000, 10_000)]
    assert constants == sorted(constants)
    assert constants[-1] == pytest.approx(100 * (1 - math.log1p(math.expm1(1.0) / 10_000)), rel=1e-12)
    assert constants[-1] > 99


def test_algorithm_3_as_printed_tells_what_a_client_holds():
    laws = algorithm_3_laws(3, 1.0, as_printed=True)
    assert exact_epsilon(joint(laws[0]), joint(laws[1]), 0.0) == math.inf
    assert exact_epsilon(laws[0][0], laws[1][0], 0.99) == math.inf  # and so does a round by itself


def test_rounds_of_our_mechanisms_are_compositional():
    assert compositionality(Pure(0.3), 16, 0.0, Relation.ZERO_OUT).constant == pytest.approx(1 / 4)
    assert compositionality(Pure(0.3), 1, 0.0, Relation.ZERO_OUT).constant == pytest.approx(1)
    gaussian = compositionality(Gaussian(8.0), 100, 1e-5, Relation.REPLACE_ONE)
    assert gaussian.total > gaussian.of_rounds[0]
    assert 0 < gaussian.constant <= 1.5
    assert Compositional((0.0, 0.0), 0.0).constant == 0.0


def test_randomised_response_among_one_is_refused():
    with pytest.raises(InvalidInput, match="d"):
        algorithm_3(1, 1.0)

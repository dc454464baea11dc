"""Mechanisms: what is done to a bounded vector before anybody else sees it. One law a file.

`MECHANISMS` names the noise that a plan or a run file may ask for; the fields of a request are its keys of [privacy].
"""

from sordino.mechanisms.binomial import BinomialRequest, binomial
from sordino.mechanisms.discrete_gaussian import discrete_gaussian
from sordino.mechanisms.gaussian import GaussianRequest, gaussian
from sordino.mechanisms.laplace import LaplaceRequest, laplace
from sordino.mechanisms.none import NoNoiseRequest, none
from sordino.mechanisms.privunit import PrivUnitRequest, privunit
from sordino.mechanisms.qtdl import QtdlRequest, qtdl
from sordino.mechanisms.request import NoiseRequest
from sordino.mechanisms.scalar_dp import scalar_dp

__all__ = [
    "MECHANISMS",
    "NoiseRequest",
    "binomial",
    "discrete_gaussian",
    "gaussian",
    "laplace",
    "none",
    "privunit",
    "qtdl",
    "scalar_dp",
]

MECHANISMS: dict[str, type[NoiseRequest]] = {
    request.name: request
    for request in (GaussianRequest, LaplaceRequest, QtdlRequest, BinomialRequest, PrivUnitRequest, NoNoiseRequest)
}

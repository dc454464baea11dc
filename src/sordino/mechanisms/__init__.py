"""Mechanisms: what is done to a bounded vector before anybody else sees it. One law a file.

`MECHANISMS` names the noise that a plan or a run file may ask for; the fields of a request are its keys of [privacy].
"""

from sordino.mechanisms.binomial import BinomialRequest
from sordino.mechanisms.binomial import binomial as binomial
from sordino.mechanisms.discrete_gaussian import discrete_gaussian as discrete_gaussian
from sordino.mechanisms.gaussian import GaussianRequest
from sordino.mechanisms.gaussian import gaussian as gaussian
from sordino.mechanisms.laplace import LaplaceRequest
from sordino.mechanisms.laplace import laplace as laplace
from sordino.mechanisms.none import NoNoiseRequest
from sordino.mechanisms.none import none as none
from sordino.mechanisms.privunit import PrivUnitRequest
from sordino.mechanisms.privunit import privunit as privunit
from sordino.mechanisms.qtdl import QtdlRequest
from sordino.mechanisms.qtdl import qtdl as qtdl
from sordino.mechanisms.request import NoiseRequest as NoiseRequest
from sordino.mechanisms.scalar_dp import scalar_dp as scalar_dp
from sordino.mechanisms.secure_sum import secure_sum as secure_sum
from sordino.mechanisms.truncated_laplace import TruncatedLaplaceRequest
from sordino.mechanisms.truncated_laplace import truncated_laplace as truncated_laplace

MECHANISMS: dict[str, type[NoiseRequest]] = {
    request.name: request
    for request in (
        GaussianRequest,
        LaplaceRequest,
        TruncatedLaplaceRequest,
        QtdlRequest,
        BinomialRequest,
        PrivUnitRequest,
        NoNoiseRequest,
    )
}

"""Mechanisms: what is done to a bounded vector before anybody else sees it. One law a file."""

from sordino.mechanisms.binomial import binomial
from sordino.mechanisms.discrete_gaussian import discrete_gaussian
from sordino.mechanisms.gaussian import gaussian
from sordino.mechanisms.laplace import laplace
from sordino.mechanisms.none import none
from sordino.mechanisms.privunit import privunit
from sordino.mechanisms.qtdl import qtdl
from sordino.mechanisms.scalar_dp import scalar_dp

__all__ = ["binomial", "discrete_gaussian", "gaussian", "laplace", "none", "privunit", "qtdl", "scalar_dp"]

"""Data: public data sets, your own data, problems with known minimisers, and the partition into clients."""

from sordino.data._records import Dataset as Dataset
from sordino.data._records import FederatedData as FederatedData
from sordino.data.datasets import CATALOGUE as CATALOGUE
from sordino.data.datasets import fetch as fetch
from sordino.data.datasets import load as load
from sordino.data.datasets import where as where
from sordino.data.on_disk import open_records as open_records
from sordino.data.partition import label_histogram as label_histogram
from sordino.data.partition import partition as partition
from sordino.data.partition import plot_label_histogram as plot_label_histogram
from sordino.data.synthetic import Quadratics as Quadratics
from sordino.data.synthetic import linear_problem as linear_problem
from sordino.data.synthetic import linear_regression as linear_regression
from sordino.data.synthetic import opposed_parabolas as opposed_parabolas
from sordino.data.synthetic import quadratic_loss as quadratic_loss
from sordino.data.synthetic import quadratics as quadratics
from sordino.data.synthetic import robust_loss as robust_loss
from sordino.data.synthetic import robust_regression as robust_regression
from sordino.data.synthetic import squared_residual as squared_residual
from sordino.data.writing import write_data as write_data
from sordino.data.writing import write_records as write_records

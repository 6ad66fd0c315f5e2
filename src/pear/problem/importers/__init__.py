"""Problems from elsewhere: one file an importer, one row in ``registry``. Each gives a ``Model``."""

from pear.problem.importers.mps import from_mps
from pear.problem.importers.osqp_mat import from_osqp_mat
from pear.problem.importers.registry import IMPORTERS, Importer, is_model, read
from pear.problem.model import Model

__all__ = ["IMPORTERS", "Importer", "Model", "from_mps", "from_osqp_mat", "is_model", "read"]

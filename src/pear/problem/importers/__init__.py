"""Importers of models from files and other modelling libraries, one file each. Each returns a ``Model``."""

from pear.problem.importers.cvxpy_problem import from_cvxpy
from pear.problem.importers.gurobi_model import from_gurobipy
from pear.problem.importers.highs_model import from_highs
from pear.problem.importers.importer_table import IMPORTERS, Importer, from_file, has_importer
from pear.problem.importers.model_arrays import ModelArrays
from pear.problem.importers.mps import from_mps
from pear.problem.importers.osqp_mat import from_osqp_mat
from pear.problem.importers.pyepo_model import from_pyepo
from pear.problem.importers.pyomo_model import from_pyomo
from pear.problem.importers.row_limits import RowLimits
from pear.problem.importers.scipy_arguments import from_scipy
from pear.problem.model import Model

__all__ = [
    "IMPORTERS",
    "Importer",
    "Model",
    "ModelArrays",
    "RowLimits",
    "from_cvxpy",
    "from_file",
    "from_gurobipy",
    "from_highs",
    "from_mps",
    "from_osqp_mat",
    "from_pyepo",
    "from_pyomo",
    "from_scipy",
    "has_importer",
]

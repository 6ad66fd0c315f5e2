"""Losses and layers for training a predictor."""

from pear.losses.cave import CaVELoss
from pear.losses.cmap import CMAPLoss
from pear.losses.cosine import CosineLoss
from pear.losses.dbb import DBBLoss
from pear.losses.decision_layer import DecisionLayer
from pear.losses.decision_loss import DecisionLoss
from pear.losses.dpo import DPOLoss, DPOMultiplicativeLoss
from pear.losses.imle import AIMLELoss, IMLELoss
from pear.losses.last_call import LastCall
from pear.losses.lava import LAVALoss
from pear.losses.ltr_listwise import ListwiseLTRLoss
from pear.losses.ltr_pairwise import PairwiseLTRLoss
from pear.losses.ltr_pointwise import PointwiseLTRLoss
from pear.losses.methods import METHODS, REQUIREMENTS, Method, make_loss, method
from pear.losses.mse import MSELoss
from pear.losses.nce import NCELoss
from pear.losses.nid import NIDLoss
from pear.losses.own_problem import OwnProblem
from pear.losses.pear_loss import PEARLoss
from pear.losses.pfyl import PFYLLoss
from pear.losses.pg import PGLoss
from pear.losses.pool_loss import PoolLoss
from pear.losses.random_draws import DrawingLoss, RandomDraws
from pear.losses.regret_metrics import normalized_regret, regret, regret_gradient
from pear.losses.rfwo import RFWOLoss
from pear.losses.rfyl import RFYLLoss
from pear.losses.sfge import SFGELoss
from pear.losses.solution_pool import PooledSolutions, SolutionPools
from pear.losses.spo_plus import SPOPlusLoss
from pear.losses.ssvm import SSVMLoss

__all__ = [
    "METHODS",
    "REQUIREMENTS",
    "AIMLELoss",
    "CMAPLoss",
    "CaVELoss",
    "CosineLoss",
    "DBBLoss",
    "DPOLoss",
    "DPOMultiplicativeLoss",
    "DecisionLayer",
    "DecisionLoss",
    "DrawingLoss",
    "IMLELoss",
    "LAVALoss",
    "LastCall",
    "ListwiseLTRLoss",
    "MSELoss",
    "Method",
    "NCELoss",
    "NIDLoss",
    "OwnProblem",
    "PEARLoss",
    "PFYLLoss",
    "PGLoss",
    "PairwiseLTRLoss",
    "PointwiseLTRLoss",
    "PoolLoss",
    "PooledSolutions",
    "RFWOLoss",
    "RFYLLoss",
    "RandomDraws",
    "SFGELoss",
    "SPOPlusLoss",
    "SSVMLoss",
    "SolutionPools",
    "make_loss",
    "method",
    "normalized_regret",
    "regret",
    "regret_gradient",
]

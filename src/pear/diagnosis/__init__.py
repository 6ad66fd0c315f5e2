"""What the errors of a forecaster cost, and advice on a problem before anything is trained."""

from pear.diagnosis.advice import Advice

__all__ = ["Advice"]

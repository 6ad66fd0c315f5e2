"""Diagnosis of what the errors of a forecaster cost, and advice on a problem before anything is trained."""

from pear.diagnosis.advice import Advice
from pear.diagnosis.diagnosis import Diagnosis

__all__ = ["Advice", "Diagnosis"]

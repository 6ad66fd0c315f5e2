"""``pear.diagnose`` measures what the errors of a forecast cost.

``pear.advise`` gives advice on a problem before training.
"""

from pear.diagnosis.advice import Advice
from pear.diagnosis.diagnosis import Diagnosis

__all__ = ["Advice", "Diagnosis"]

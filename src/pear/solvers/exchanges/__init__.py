"""Compiled exchanges of constraints for sparse programs.

The exchanges begin with the working set of a warm start. Held constraints whose multiplier has the wrong sign leave the
working set, and violated constraints enter it, until the point is a solution. If that fails, a proximal search begins
at the warm start.

===================  ==================================================================================================
``exchange_matrix``  sparse matrices and their products in compiled code
``exchange_plan``    what all samples of a problem share
``exchange_arrays``  the data of samples, and the memory of a thread
``masked_system``    the reduced system of a working set
``exchange_search``  the exchanges of one sample
``proximal_search``  strictly convex programs whose solutions lead to the right working set
``exchange_calls``   calls from Python
===================  ==================================================================================================
"""

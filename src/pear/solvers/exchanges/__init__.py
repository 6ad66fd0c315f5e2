"""Compiled exchanges of constraints for sparse programs.

From the working set of a warm start, the constraints that are wrong leave or enter the working set until the point is a
solution.

===================  ==================================================================================================
``exchange_matrix``  sparse matrices and their products in compiled code
``exchange_plan``    what all samples of a problem share
``exchange_arrays``  the data of samples, and the memory of a thread
``masked_system``    the reduced system of a working set
``exchange_search``  the exchanges of one sample
``exchange_calls``   calls from Python
===================  ==================================================================================================
"""

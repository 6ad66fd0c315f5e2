"""The default training of ``fit``: a race between a fit to the squared error and trainings on the loss."""

"""The default training: a race between the squared error and trainings on the loss, judged on held-out samples."""

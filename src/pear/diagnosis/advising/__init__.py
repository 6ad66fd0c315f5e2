"""What ``pear.advise`` looks at, one file for each question: a ``Subject`` in, a ``Part`` of the advice out."""

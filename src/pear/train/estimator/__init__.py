"""The regressor of scikit-learn, and what belongs to it: its model file, its networks, names of columns, the scorer."""

"""``DecisionRegressor``, an estimator for scikit-learn, with its networks, its model file, and ``regret_scorer``."""

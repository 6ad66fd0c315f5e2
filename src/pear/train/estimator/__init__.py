"""``DecisionRegressor`` for scikit-learn, its networks, its model file, and ``regret_scorer``."""

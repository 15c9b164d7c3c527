"""Personalised federated learning by meta-learning."""

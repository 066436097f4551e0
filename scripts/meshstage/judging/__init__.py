"""What a model is worth: metrics, evaluation, its checks and its summary."""

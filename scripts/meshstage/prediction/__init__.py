"""Ask a trained model: the predictor, written predictions, stress, export."""

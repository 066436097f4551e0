"""How a model is trained: the loop, what it leaves on disk, and one class a network."""

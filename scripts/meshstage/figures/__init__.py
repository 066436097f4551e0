"""What people look at: figures, animations, a page in 3-D and tables."""

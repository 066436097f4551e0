"""What tissue resists: elasticity, elements, bodies."""

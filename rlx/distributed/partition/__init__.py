"""How a graph of whole tensors becomes that of a rank: its ops cut by their factors, and the
collectives between them."""

"""The IR: graphs, values, ops and their attributes, and what walks over them."""

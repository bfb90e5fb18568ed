"""The names of the system that RLX follows, and what expresses each here."""

"""The commands of ``rlx``, a module each."""

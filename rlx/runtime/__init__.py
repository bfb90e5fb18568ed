"""Running artifacts: sessions, executables, backends and the native runtime."""

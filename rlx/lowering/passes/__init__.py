"""The passes of the pipeline, a file each."""

"""From hir to lir: a pass a file, and the pipeline that lists them in order."""

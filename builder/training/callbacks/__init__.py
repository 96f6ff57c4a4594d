"""What watches a run: checkpoints, the progress bar, speed, and the handling of an interruption."""

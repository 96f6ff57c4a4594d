"""What W&B is told of a run: who it is, its rows, tables and files, and what lies offline until it is sent."""

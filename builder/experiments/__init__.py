"""Runs as things on disk and in W&B: their folders, sheets, metrics, and how one is loaded again."""

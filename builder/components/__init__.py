"""What a model is made of: one room per kind of part, one file per name."""

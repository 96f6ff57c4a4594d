"""The families of models that can be brought in and out: one file each, named for its `model_type`."""

"""The jobs: each command of the project, `python -m recipes.<job>`."""

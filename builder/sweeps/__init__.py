"""Sweeps: every point is expanded, checked and paid for on paper before the first one is launched.

    words and conf/sweep/*.yaml -> points (`axes`) -> configs (`composer`) -> a plan (`plan`) -> jobs (`launched`)

Each job is a process of its own behind whichever launcher Hydra has, so that none takes another with it. Jobs that a
machine runs at once see GPUs of their own (`gpus`), as many as trainer.devices asks for.
"""

"""A callback that ends a run before its time, in the way that its seed stands for."""

import os
import signal
import time

import lightning as L


def _raise():
    raise RuntimeError("the third step fails")


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


def _hang():
    time.sleep(600)


class Fault(L.Callback):
    """`raises`, `dies`, `hangs`: lists of the seeds that it befalls, after the third step; `lingers`, in the fourth."""

    def __init__(self, raises=(), dies=(), hangs=(), lingers=()):
        self.does = {**dict.fromkeys(raises, _raise), **dict.fromkeys(dies, _kill), **dict.fromkeys(hangs, _hang)}
        self.lingers = lingers

    def on_train_batch_end(self, trainer, module, *_):
        if trainer.global_step == 3 and module.spec.seed in self.does:
            self.does[module.spec.seed]()
        if trainer.global_step == 4 and module.spec.seed in self.lingers:
            time.sleep(1.5)

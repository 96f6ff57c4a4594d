"""Every part of a run on a device that is no CPU: nothing is made beside it, and no step waits for it.

The device only pretends: its tensors have shapes and no numbers, so that an operation over two devices raises, and so
does one whose outcome the program would have to know, which on a GPU means to wait.
"""

import multiprocessing
import os
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from builder.checklist.probes import specimen
from builder.checklist.probes.lesson import Lesson
from builder.load import load
from builder.model.language_model import LanguageModel
from builder.spec import RunSpec
from builder.training.ranks import Ranks
from builder.training.step import Step
from builder.training.tallies import Tallies
from tests.test_yaml import APART, BESIDE, BESIDE_OPTION, OPTIONS, REFUSED, filled  # noqa: F401  (a fixture)

DEVICE = "elsewhere"
ROOMS = {"attention", "ssm", "recurrent", "ffn", "router", "position", "scaling"}
GROUPS = {f"model/{room}" for room in ROOMS} | {"objective", "optimizer"}
CASES = [chosen for chosen in OPTIONS if chosen[0] in GROUPS and chosen not in APART and chosen not in REFUSED]
DATA = {
    "objective=classification": ["data=passages"],
    "objective=contrastive": ["data=passages", "data.form=contrastive"],
    "objective=seq2seq": ["data=reverse", "data.form=pairs"],
}
FAULTS: dict[str, Callable[[Tensor], object]] = {
    "made beside it": lambda x: x + torch.ones(2),
    "read": lambda x: bool(x.sum() > 0),
    "counted": lambda x: x.nonzero(),
    "sent": lambda x: x + torch.ones(2).to(DEVICE),
    "sent as a number": lambda x: torch.tensor(1.0, device=DEVICE),
}
WAITS = {("model/recurrent", name): ("nonzero", "aten::empty_strided") for name in ("rnn", "lstm", "gru")}
"""torch's own cells read rows of several documents, and padded ones, by lengths that the CPU must know; and its GRU
can't be pretended."""


def pretend() -> None:
    """Makes the device known to torch, in this process."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as known

    module: Any = types.ModuleType(DEVICE)
    module.is_available, module.is_initialized, module._is_in_bad_fork = (lambda: True), (lambda: True), (lambda: False)
    module.device_count, module.current_device = (lambda: 1), (lambda: 0)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    known(DEVICE, backend_module=module)


class Watch(TorchDispatchMode):
    """Raises where a number that the CPU has is sent to the device, and waited for."""

    def __torch_dispatch__(self, function: Any, kinds: Any, given: Any = (), named: Any = None) -> Any:
        named = named or {}
        out = function(*given, **named)
        if function in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            devices = {tensor.device.type for tensor in (out, *given) if isinstance(tensor, Tensor)}
            assert len(devices) == 1 or named.get("non_blocking") or True in given[2:], f"{function} waits"
        return out


@contextmanager
def pretending() -> Iterator[None]:
    with FakeTensorMode(), Watch():
        yield


def there(tensor: Tensor) -> Tensor:
    """A tensor of that shape on the device, without its numbers, in the float32 of a run."""
    return torch.empty(tensor.shape, dtype=torch.float32 if tensor.is_floating_point() else tensor.dtype, device=DEVICE)


def move(model: nn.Module) -> None:
    """Puts every parameter and buffer on the device; what is shared stays so."""
    moved: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter not in moved:
                moved[parameter] = nn.Parameter(there(parameter), parameter.requires_grad)
            setattr(module, name, moved[parameter])
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, there(buffer))


def alone() -> Any:
    """What the engine asks of Lightning, of one process without mixed precision."""
    plain = types.SimpleNamespace(forward_context=nullcontext)
    trainer = types.SimpleNamespace(strategy=types.SimpleNamespace(model=None), precision_plugin=plain)
    told = {"ranks": Ranks(), "tallies": Tallies(), "trainer": trainer, "device": torch.device(DEVICE)}
    return types.SimpleNamespace(micro_batch=3, global_step=0, manual_backward=Tensor.backward, **told)


def step(lesson: Lesson) -> None:
    """A step of the engine in two micro-batches of the last batch of the lesson, which has every kind of row."""
    optimizer: Any = lesson.spec.optimizer.component
    with torch.no_grad():
        batch = lesson.objective.collate(dict(lesson.batches[-1]), (0, 1, 2, 3, 4), lesson.tokenizer)
    with pretending():
        move(lesson.model.train())
        update = optimizer.build(lesson.spec.optimizer, lesson.model)
        engine, training = Step(lesson.spec, lesson.model), alone()
        losses, targets, _ = engine.backward(training, {key: there(told) for key, told in batch.items()})
        norm = engine.clip(update)
        update.step()
        training.tallies.settle(training.ranks.sum)
        assert {losses.device.type, targets.device.type, norm.device.type} == {DEVICE}


@torch.no_grad()
def decode(model: LanguageModel) -> None:
    """A prompt with and without padding, and a token behind it, in rows that are then exchanged."""
    with pretending():
        move(model.eval())
        tokens = torch.empty(2, 4, dtype=torch.long, device=DEVICE)
        source = {} if model.encoder is None else {"source": tokens}
        for mask in (None, torch.empty(2, 4, dtype=torch.bool, device=DEVICE)):
            state = model.new_state(2, 10)
            model(tokens, attention_mask=mask, state=state, last_only=True, **source)
            model(tokens[:, :1], state=state, last_only=True)
            state.reorder(torch.empty(2, dtype=torch.long, device=DEVICE))


def failed(work: Callable[..., None], *given: Any) -> str:
    """What a piece of work raised; nothing if it did not."""
    try:
        work(*given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def tried(spec: RunSpec) -> dict[str, str]:
    """What training and generation raised."""

    def lesson() -> Lesson:
        kind: Any = spec.objective.component
        return Lesson(specimen(spec.model, len(kind.specials(spec.objective)) + 2), spec)

    found = {"step": failed(step, lesson())}
    if spec.model.kind != "encoder":
        found["decode"] = failed(decode, specimen(spec.model).model)
    return found


def broken(fault: Callable[[Tensor], object]) -> None:
    with pretending():
        fault(torch.empty(2, device=DEVICE))


def overrides(case: tuple[str, str]) -> list[str]:
    """What chooses a case, with what goes with it, and data that its objective can be taught."""
    chosen = [*BESIDE.get(case[0], ()), *BESIDE_OPTION.get(case, ()), "=".join(case)]
    return [*chosen, *(knob for choice in chosen for knob in DATA.get(choice, ()))]


def work(asked: Connection) -> None:
    """Says what happened to the faults, and then to each config that it is asked about; ends the process by force,
    since torch would look for the device."""
    torch.set_num_threads(1)
    pretend()
    asked.send({name: failed(broken, fault) for name, fault in FAULTS.items()})
    while (config := asked.recv()) is not None:
        asked.send(tried(load(config)))
    os._exit(0)


@pytest.fixture(scope="module")
def there_is() -> Iterator[Connection]:
    """A process of its own that knows the device: where torch has gone backward before, it takes no further one."""
    context = multiprocessing.get_context("spawn")
    here, end = context.Pipe()
    process = context.Process(target=work, args=(end,))
    process.start()
    end.close()  # so that its death is heard
    yield here
    here.send(None)
    process.join()


@pytest.fixture(scope="module")
def faults(there_is: Connection) -> dict[str, str]:
    """What happened to each of the faults."""
    return there_is.recv()


@pytest.mark.turns(3)
@pytest.mark.parametrize("case", CASES, ids="=".join)
def test_a_run_is_at_home_on_any_device(
    case: tuple[str, str],
    there_is: Connection,
    faults: dict[str, str],
    filled: Callable[[list[str]], Any],  # noqa: F811
):
    there_is.send(filled(overrides(case)))
    for what, error in there_is.recv().items():
        assert any(word in error for word in WAITS[case]) if case in WAITS else not error, f"{what}: {error}"


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_not_is_seen(fault: str, faults: dict[str, str]):
    assert faults[fault]

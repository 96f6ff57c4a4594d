"""The average of the weights against a float64 loop and torch's own, and what deploying it leaves as it was."""

import io
from functools import partial

import pytest
import torch
from torch.distributed import HashStore, destroy_process_group, init_process_group
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from builder import build, registry
from builder.sections import EmaSpec
from builder.training.averaging import Averages, Ema, averages
from tests.tiny_run import MOE, same, spec_of

UNTIED = ["model.tie_embeddings=false"]
TOKENS = torch.arange(24).view(2, 12)


def ema(decay):
    return Ema(EmaSpec(decay=decay))


@torch.no_grad()
def moved(model, seed):
    """Moves every parameter, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn(parameter.shape, generator=generator).to(parameter)


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def averaged(model, average, steps, first=0):
    for step in range(first, first + steps):
        moved(model, step)
        average.update(model)


# the average


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
def test_it_is_the_loop(tmp_path, decay):
    """One number after the other, from the weights after the first step on."""
    model, average = build(spec_of(tmp_path).model, seed=0, dtype=torch.float64), ema(decay)
    wanted = {}
    for step in range(12):
        moved(model, step)
        average.update(model)
        for name, weight in weights(model).items():
            now = weight.flatten().tolist()
            before = wanted.get(name, now)
            wanted[name] = [decay * old + (1 - decay) * new for old, new in zip(before, now, strict=True)]
    found = average.state(model)
    for name, numbers in wanted.items():
        assert found[name].flatten().tolist() == pytest.approx(numbers, abs=1e-12, rel=0)
    assert not same(found, {name: weights(model).get(name) for name in found})


@pytest.mark.parametrize("options", [[], UNTIED, MOE], ids=["tied", "untied", "moe"])
def test_it_is_that_of_torch_bit_for_bit(tmp_path, options):
    model, average = build(spec_of(tmp_path, *options).model, seed=0), ema(0.9)
    theirs = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for step in range(5):
        averaged(model, average, 1, first=step)
        theirs.update_parameters(model)
    ours = average.state(model)
    for name, weight in theirs.module.named_parameters():
        assert torch.equal(ours[name], weight), name


def test_weights_in_bfloat16_are_averaged_in_float32(tmp_path):
    model, average = build(spec_of(tmp_path).model, seed=0, dtype=torch.bfloat16), ema(0.999)
    wanted = {}
    theirs = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    for step in range(20):
        averaged(model, average, 1, first=step)
        theirs.update_parameters(model)
        for name, weight in weights(model).items():
            wanted[name] = wanted.get(name, weight.double()).lerp(weight.double(), 1 - 0.999)
    (found, exact) = (average.state(model)["embedding.weight"], wanted["embedding.weight"])
    torch.testing.assert_close(found, exact.float(), atol=1e-7, rtol=1e-5)
    lost = theirs.module.get_parameter("embedding.weight").double() - exact
    assert lost.abs().max() > 1e-3, "in bfloat16 it would stand still"
    with average.deployed(model):
        assert torch.equal(model.embedding.weight, found.bfloat16())


def test_what_is_not_trained_is_not_averaged(tmp_path):
    model, average = build(spec_of(tmp_path, *UNTIED).model, seed=0), ema(0.9)
    model.embedding.weight.requires_grad = False
    averaged(model, average, 2)
    assert weights(model).keys() - average.state(model).keys() == {"embedding.weight"}


def test_a_step_waits_for_no_device(tmp_path):
    """Tensors without values can't be asked for any: who waits for one fails."""
    model, average = build(spec_of(tmp_path).model, device="meta"), ema(0.9)
    for _ in range(3):
        average.update(model)
    with average.deployed(model):
        assert model.embedding.weight.is_meta
    theirs = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), device="meta")
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        theirs.update_parameters(model)


# deploying it


@pytest.mark.parametrize("options", [[], UNTIED, MOE], ids=["tied", "untied", "moe"])
def test_the_model_is_the_average_and_then_itself_again(tmp_path, options):
    model, average = build(spec_of(tmp_path, *options).model, seed=0).eval(), ema(0.9)
    averaged(model, average, 3)
    before, places = weights(model), [parameter.data_ptr() for parameter in model.parameters()]
    plain = model(TOKENS).logits
    other = build(spec_of(tmp_path, *options).model, seed=1).eval()
    other.load_state_dict(model.state_dict() | average.state(model))
    with average.deployed(model):
        assert [parameter.data_ptr() for parameter in model.parameters()] == places
        inside = model(TOKENS).logits
        assert same(weights(model), weights(other))
    assert torch.equal(inside, other(TOKENS).logits) and not torch.equal(inside, plain)
    assert same(weights(model), before)
    with pytest.raises(KeyboardInterrupt), average.deployed(model):
        raise KeyboardInterrupt
    assert same(weights(model), before) and torch.equal(model(TOKENS).logits, plain)
    average.deploy(model)
    assert same(weights(model), weights(other)), "and for good"


def test_a_tied_weight_stands_under_each_of_its_names(tmp_path):
    model, average = build(spec_of(tmp_path).model, seed=0), ema(0.9)
    averaged(model, average, 3)
    state = average.state(model)
    assert state.keys() == {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert state.keys() <= model.state_dict().keys()
    assert torch.equal(state["head.weight"], state["embedding.weight"])
    some = {name: state[name] for name in state if name != "head.weight"}
    model.load_state_dict(saved(model.state_dict()) | some)
    assert not torch.equal(model.embedding.weight, state["embedding.weight"]), "under one, the other would undo it"


def test_buffers_stay_their_modules(tmp_path):
    options = [*MOE, "model.moe.balance.bias_speed=0.1"]
    model, average = build(spec_of(tmp_path, *options).model, seed=0), ema(0.9)
    buffers = {name for name, _ in model.named_buffers()}
    assert any(name.endswith("preference") for name in buffers)
    averaged(model, average, 2)
    assert not buffers & average.state(model).keys()
    for buffer in model.buffers():
        buffer += 1
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with average.deployed(model):
        assert same(dict(model.named_buffers()), before)


def test_without_an_average_the_weights_are_deployed(tmp_path):
    model = build(spec_of(tmp_path).model, seed=0)
    for average in (averages(None, None), ema(0.9)):  # of no step yet, too
        before = weights(model)
        with average.deployed(model):
            assert same(weights(model), before)
        average.deploy(model)
        assert same(weights(model), before) and average.state(model) == {}
    assert isinstance(averages(EmaSpec(), None), Ema)


# going on


def saved(content):
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options", [[], MOE], ids=["tied", "moe"])
def test_it_goes_on_as_if_never_cut(tmp_path, options, dtype):
    make = partial(build, spec_of(tmp_path, *options).model, dtype=dtype)
    whole, average = make(seed=0), ema(0.9)
    averaged(whole, average, 6)
    model, first = make(seed=0), ema(0.9)
    averaged(model, first, 3)
    checkpoint = saved({"model": model.state_dict(), "averaged": first.state(model)})
    kept, ends = saved(checkpoint["averaged"]), []
    for remembers in (True, False):
        model, second = make(seed=1), ema(0.9)
        model.load_state_dict(checkpoint["model"])
        if remembers:
            second.restore(model, checkpoint["averaged"])
            assert same(second.state(model), checkpoint["averaged"])
        averaged(model, second, 3, first=3)
        ends.append(same(second.state(model), average.state(whole)))
    assert ends == [True, False]
    assert same(checkpoint["averaged"], kept), "what was restored is a copy"


@pytest.mark.parametrize("name", registry.names("optimizer"))
def test_what_an_optimizer_deploys_is_all_in_its_state(tmp_path, name):
    kind = registry.find("optimizer", name)

    def made(seed):
        model = build(spec_of(tmp_path).model, seed=seed)
        optimizer = kind.build(kind.Config(), model)
        return model, optimizer, averages(None, kind.deployed(optimizer))

    model, optimizer, average = made(0)
    for step in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(step))
        optimizer.step()
        average.update(model)
    checkpoint = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "a": average.state(model)})
    other, second, again = made(1)
    other.load_state_dict(checkpoint["model"])
    second.load_state_dict(checkpoint["optimizer"])
    again.restore(other, checkpoint["a"])
    assert same(again.state(other), average.state(model))
    before = weights(other)
    with again.deployed(other):
        deployed = weights(other)
    assert same(weights(other), before)
    with average.deployed(model):
        assert same(weights(model), deployed)
    assert same(deployed, before) == (type(average) is Averages)


# shards


@pytest.fixture
def one_rank():
    """torch.distributed with this process alone."""
    init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    destroy_process_group()


def test_the_average_of_shards_is_that_of_the_whole(tmp_path, one_rank):
    whole, sharded = (build(spec_of(tmp_path, *UNTIED).model, seed=0) for _ in range(2))
    fully_shard(sharded)
    one, other = ema(0.9), ema(0.9)
    for step in range(4):
        averaged(whole, one, 1, first=step)
        with torch.no_grad():
            for parameter, shard in zip(whole.parameters(), sharded.parameters(), strict=True):
                assert isinstance(shard, DTensor)
                shard.to_local().copy_(parameter)
        other.update(sharded)
    state = other.state(sharded)
    assert same(state, one.state(whole)) and not any(isinstance(tensor, DTensor) for tensor in state.values())
    again = ema(0.9)
    again.restore(sharded, state)
    assert all(isinstance(weight, DTensor) for weight in again.weights(sharded).values())
    assert same(again.state(sharded), state)
    before = [parameter.to_local().clone() for parameter in sharded.parameters()]
    with again.deployed(sharded), one.deployed(whole):
        inside = [parameter.full_tensor() for parameter in sharded.parameters()]
        assert same(inside, [parameter.data for parameter in whole.parameters()])
        assert torch.equal(logits(sharded), logits(whole))
    assert same([parameter.to_local() for parameter in sharded.parameters()], before)
    assert torch.equal(logits(sharded), logits(whole)), "what was gathered for a pass is stale"
    assert again.state(sharded).keys() == state.keys(), "and stands in the place of shards after another"


@torch.no_grad()
def logits(model):
    return model.eval()(TOKENS).logits

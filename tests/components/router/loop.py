"""A mixture of experts as chapter 3.9 and the papers write it: one token after the other, one expert at a time."""

import math
from fractions import Fraction

import torch


def dense(weight, bias, x):
    return weight @ x + (0 if bias is None else bias)


def glu(maps, x):
    gate, up = maps("gate", x), maps("up", x)
    return maps("down", gate / (1 + torch.exp(-gate)) * up)  # silu


def mlp(maps, x):
    up = maps("up", x)
    return maps("down", up * 0.5 * (1 + torch.erf(up / math.sqrt(2))))  # gelu


FFNS = {"glu": glu, "mlp": mlp}


def expert(config, module, number, x):
    """E_e(x), the expert called `number`; None: a plain ffn."""

    def maps(name, x):
        held = getattr(module, name)
        if number is None:
            return dense(held.weight, held.bias, x)
        return dense(held.weight[number], None if held.bias is None else held.bias[number], x)

    return FFNS[config.name](maps, x)


def scored(config, logits):
    """(the score of each expert, how the chosen are weighed) for one token; a list of scalars."""
    router = config.router
    usual = {
        "switch": ("softmax", "plain"),
        "noisy_topk": ("softmax", "selected"),
        "expert_choice": ("softmax", "plain"),
    }
    score, weights = usual.get(router.name) or (router.score, router.weights)
    if score == "sigmoid":
        return [1 / (1 + torch.exp(-logit)) for logit in logits], weights
    total = sum(torch.exp(logit) for logit in logits)
    return [torch.exp(logit) / total for logit in logits], weights


def ranking(config, scores, preference):
    """The experts that a token may go to, the best first."""
    worth = [score.item() + pull for score, pull in zip(scores, preference, strict=True)]
    allowed = range(len(worth))
    if config.router.name == "grouped_topk":
        router, size = config.router, len(worth) // config.router.n_groups
        groups = [list(range(first, first + size)) for first in range(0, len(worth), size)]
        best = {"best": 1, "two": 2}[router.group_score]
        by_worth = lambda group: sum(sorted((worth[e] for e in group), reverse=True)[:best])  # noqa: E731
        allowed = [e for group in sorted(groups, key=by_worth, reverse=True)[: router.top_groups] for e in group]
    return sorted(allowed, key=lambda e: (-worth[e], e))


def room(tokens, top_k, n_experts, factor):
    """C = clamp(ceil(T k / E cf), 1, T), in whole numbers."""
    return max(1, min(tokens, math.ceil(Fraction(str(factor)) * tokens * top_k / n_experts)))


def seated(rankings, top_k, seats, overflow):
    """(where each token goes, None for a choice that is given up; how many choices were over; how many given up)."""
    left, n_over = dict.fromkeys({e for order in rankings for e in order}, seats), 0
    first = [[None] * top_k for _ in rankings]
    for choice in range(top_k):  # first choices before second ones
        for token, order in enumerate(rankings):
            if left[order[choice]] > 0:
                left[order[choice]] -= 1
                first[token][choice] = order[choice]
            else:
                n_over += 1
    if overflow == "expand":
        return [order[:top_k] for order in rankings], n_over, 0
    if overflow == "drop":
        return first, n_over, n_over
    left, found = dict.fromkeys(left, seats), [[] for _ in rankings]
    for rank in range(max(map(len, rankings), default=0)):  # each token in turn its best, then each its next
        for token, order in enumerate(rankings):
            if rank < len(order) and len(found[token]) < top_k and left[order[rank]] > 0:
                left[order[rank]] -= 1
                found[token].append(order[rank])
    return found, n_over, sum(top_k - len(places) for places in found)


def weighed(kind, logits, scores, experts):
    """The weight of each of a token's experts."""
    if kind == "selected":
        total = sum(torch.exp(logits[e]) for e in experts)
        return [torch.exp(logits[e]) / total for e in experts]
    total = sum(scores[e] for e in experts) if kind == "renormalised" else 1
    return [scores[e] / total for e in experts]


def routed(config, module, tokens, factor):
    """[(token, expert, weight)] of the tokens (N, D), and (asked (X,), over, dropped)."""
    router, k, n_experts = module.router, config.top_k, config.n_experts
    logits = [dense(router.weight, router.bias, x).unbind() for x in tokens]
    scores = [scored(config, row)[0] for row in logits]
    if config.router.name == "expert_choice":
        ways, seats = [], room(len(tokens), k, n_experts, 1)
        for e in range(n_experts):
            best = sorted(range(len(tokens)), key=lambda t, e=e: -scores[t][e].item())[:seats]
            ways += [(t, e, scores[t][e]) for t in best]
        missed = len(set(range(len(tokens))) - {t for t, _, _ in ways})
        return ways, ([seats] * n_experts, 0, missed * k)
    preference = [0.0] * n_experts if router.preference is None else router.preference.tolist()
    rankings = [ranking(config, row, preference) for row in scores]
    chosen = [order[:k] for order in rankings]
    going, over, dropped = chosen, 0, 0
    if factor is not None:
        going, over, dropped = seated(rankings, k, room(len(tokens), k, n_experts, factor), config.overflow)
    ways = []
    for t, places in enumerate(going):
        kept = places if config.overflow == "reroute" else chosen[t]  # what is given up keeps its share of the weight
        kind = scored(config, logits[t])[1]
        weights = dict(zip(kept, weighed(kind, logits[t], scores[t], kept), strict=True))
        ways += [(t, e, weights[e]) for e in places if e is not None]
    asked = [sum(e in places for places in chosen) for e in range(n_experts)]
    return ways, (asked, over, dropped)


def mixture(config, module, x, real=None, factor=None):
    """(y (B, T, D), (asked, over, dropped)) of x (B, T, D); where `real` (B, T) is false no expert is passed."""
    flat = list(x.flatten(0, 1))
    here = [n for n in range(len(flat)) if real is None or real.flatten()[n]]
    ways, counts = routed(config, module, [flat[n] for n in here], factor)
    y = [torch.zeros_like(row) for row in flat]
    for t, e, weight in ways:
        n = here[t]
        y[n] = y[n] + config.scale * weight * expert(config.expert, module.experts, e, flat[n])
    if config.shared is not None:
        for n, row in enumerate(flat):
            beside = expert(config.shared, module.shared, None, row)
            gate = torch.sigmoid(module.shared_gate.weight[0] @ row) if config.shared_gate else 1
            y[n] = y[n] + gate * beside
    return torch.stack(y).view_as(x), counts

"""What the checklist says of a mixture of experts: the choice, the capacity, the balance (chapter 3.11, question 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from builder.component import Site
from builder.finding import Finding, Status
from builder.model.balance import Balance
from builder.model.seats import capacity

_TERMS = {
    "aux_loss": "aux_loss is X sum_e f_e p_e of each layer, 1 when tokens are spread evenly",
    "z_loss": "z_loss is the mean square of log sum_e exp l_e",
    "sequence_loss": "sequence_loss is the aux loss of each sequence by itself",
    "bias_speed": "bias_speed moves preferences once a step, outside of any gradient",
}


def judge(config: Any, site: Site) -> Iterator[Finding]:
    """Whether its parts go together, and what that means; paths are relative to its slot."""
    yield from _choice(config)
    if config.top_k <= config.n_experts:
        yield from config.router.component.judge(config.router, config.n_experts, config.top_k, site)
    yield from _order(config, site)
    if config.eval_capacity_factor is not None:
        rule = "an answer depends on what else is in its pass: prefill, decode and batches of other sizes differ"
        found = f"capacity_factor {config.eval_capacity_factor:g} outside of training, overflow {config.overflow}"
        yield Finding(Status.WARN, 5, "eval_capacity_factor", found, rule, "eval_capacity_factor=null")


def judge_pass(config: Any, tokens: int) -> Iterator[Finding]:
    """What balances the load, and whether the capacity leaves experts anything to do with so many tokens."""
    yield from _balance(config)
    if config.capacity_factor is None:
        rule = "dropless: an expert takes all tokens that choose it"
        yield Finding(Status.PASS, 5, "capacity_factor", "no capacity", rule)
        return
    factor, k, n_experts = config.capacity_factor, config.top_k, config.n_experts
    share, seats = factor * tokens * k / n_experts, capacity(tokens, k, n_experts, factor)
    found = f"capacity_factor {factor:g}, overflow {config.overflow}: {seats} of {tokens:,} tokens for each expert"
    if share < 1:
        rule = f"factor N k / X = {share:.2g} rounds to nothing; one token is taken, and almost none get an expert"
        fix = f"capacity_factor={n_experts / (tokens * k):.3g} at least, or null"
        yield Finding(Status.WARN, 5, "capacity_factor", found, rule, fix)
    elif seats == tokens:
        rule = "the capacity is the whole pass: nothing ever overflows"
        yield Finding(Status.WARN, 5, "capacity_factor", found, rule, "capacity_factor=null")
    elif factor < 1:
        rule = "all experts together hold fewer tokens than there are choices: some overflow even when spread evenly"
        yield Finding(Status.WARN, 5, "capacity_factor", found, rule, "capacity_factor=1.0 or more, or null")
    else:
        yield Finding(Status.PASS, 5, "capacity_factor", found, "ceil(factor N k / X), N the tokens of a pass")


def _choice(config: Any) -> Iterator[Finding]:
    n_experts, k = config.n_experts, config.top_k
    beside = "" if config.shared is None else f", and through a shared {config.shared.name} beside"
    found = f"X {n_experts} experts, k {k} a token, chosen by {config.router.name}"
    if k > n_experts:
        rule = f"a token can't go to {k} different experts of {n_experts}"
        yield Finding(Status.FAIL, 5, "top_k", found, rule, f"top_k={min(2, n_experts)}, or n_experts={2 * k}")
    elif k == n_experts:
        rule = "every token goes to every expert: nothing is routed, and nothing saved"
        yield Finding(Status.WARN, 5, "top_k", found, rule, f"n_experts={4 * k}, or a dense ffn")
    else:
        yield Finding(Status.PASS, 5, "top_k", found, f"a token passes through {k} of {n_experts} experts{beside}")


def _balance(config: Any) -> Iterator[Finding]:
    balance: Balance | bool | None = config.balance
    by_itself, nothing_to_choose = config.router.component.balanced, config.top_k >= config.n_experts
    if not isinstance(balance, Balance):
        if by_itself:
            rule = "each expert takes as many tokens as every other"
            yield Finding(Status.PASS, 5, "balance", f"by {config.router.name}", rule)
        elif nothing_to_choose:
            yield Finding(Status.PASS, 5, "balance", "none", "every token goes to every expert: nothing can be uneven")
        elif balance is None:
            rule = "nothing keeps the router from sending all tokens to a few experts (chapter 3.9)"
            fix = "balance={aux_loss: 0.01}, or balance=false if none is wanted"
            yield Finding(Status.FAIL, 5, "balance", "none", rule, fix)
        else:
            rule = "as asked for: the router may send all tokens to a few experts; watch moe/*/max_over_mean"
            yield Finding(Status.WARN, 5, "balance", "none, on purpose", rule, "balance={aux_loss: 0.01}")
        return
    weights = {name: weight for name, weight in balance if weight}
    found = ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
    if by_itself or nothing_to_choose:
        why = f"{config.router.name} balances by construction" if by_itself else "every token goes to every expert"
        yield Finding(Status.WARN, 5, "balance", found, f"without effect: {why}", "balance=false")
    else:
        yield Finding(Status.PASS, 5, "balance", found, "; ".join(_TERMS[name] for name in weights))


def _order(config: Any, site: Site) -> Iterator[Finding]:
    """Whether later tokens take places from earlier ones."""
    turned_away = config.capacity_factor is not None and config.overflow != "expand"
    if site.causal and turned_away and (config.top_k > 1 or config.overflow == "reroute"):
        found = f"capacity with top_k {config.top_k}, overflow {config.overflow}, in training"
        rule = "a later token's first choice goes before an earlier one's second: what is dropped tells of the future"
        yield Finding(Status.WARN, 2, "capacity_factor", found, rule, "capacity_factor=null, or top_k=1")

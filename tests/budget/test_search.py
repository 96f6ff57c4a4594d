"""The numbers around a target against those that trying every number finds."""

import random
from functools import cache
from itertools import product

import pytest

from builder.budget.search import enclose

LIMIT = 2000
COSTS = {
    "line": lambda n: 70 + 13 * n,
    "square": lambda n: 5 * n * n + n,
    "cube": lambda n: n**3,
    "steps": lambda n: 100 * (n // 10) + 7,
    "log": lambda n: 1000 * n.bit_length(),
    "flat": lambda n: 500,
}
VALID = {
    "all": lambda n: True,
    "even": lambda n: n % 2 == 0,
    "of 64": lambda n: n % 64 == 0,
    "3 mod 7": lambda n: n % 7 == 3,
    "divisors of 96": lambda n: 96 % n == 0,
    "from 50 on": lambda n: n >= 50,
    "up to 90": lambda n: n <= 90,
    "primes": lambda n: n > 1 and all(n % k for k in range(2, int(n**0.5) + 1)),
}


def tried_all(target, valid, cost):
    """The costs on both sides of the target, by trying every number."""
    costs = [cost(n) for n in range(1, LIMIT + 1) if valid(n)]
    below, above = [c for c in costs if c <= target], [c for c in costs if c >= target]
    return max(below, default=None), min(above, default=None)


@pytest.mark.parametrize(("valid", "cost"), list(product(VALID, COSTS)))
def test_it_finds_what_trying_all_finds(valid, cost):
    draw, allowed, price = random.Random(0), cache(VALID[valid]), cache(COSTS[cost])
    everything = [price(n) for n in range(1, LIMIT + 1) if allowed(n)]
    growing = len(set(everything)) > 1
    for _ in range(60):
        target = draw.randint(1, int(1.1 * draw.choice(everything)) + 1)
        start = draw.randint(1, 300)
        low, high = enclose(target, start=start, limit=LIMIT, valid=allowed, cost=price)
        assert all(n is None or allowed(n) for n in (low, high))
        below, above = tried_all(target, allowed, price)
        if growing and cost not in ("steps", "log"):  # those are flat in places
            assert (low and price(low), high and price(high)) == (below, above), (target, start)
        else:
            assert low is None or price(low) <= target
            assert high is None or price(high) >= target


def test_nothing_is_asked_of_numbers_that_are_not_allowed():
    def cost(number):
        assert number % 6 == 0
        return number**2

    assert enclose(1_000_000, start=7, limit=5000, valid=lambda n: n % 6 == 0, cost=cost) == (996, 1002)


def test_nothing_allowed_is_nothing_found():
    assert enclose(10, start=5, limit=100, valid=lambda n: False, cost=lambda n: n) == (None, None)


@pytest.mark.parametrize(("cost", "most"), [("line", 6), ("square", 14)])
def test_it_looks_at_few_costs(cost, most):
    for target in (10**4, 10**5, 10**6, 10**7):
        asked = []

        @cache
        def price(number, asked=asked):
            asked.append(number)
            return COSTS[cost](number)

        enclose(target, start=344, limit=10**7, valid=lambda n: True, cost=price)
        assert len(asked) <= most, (target, asked)

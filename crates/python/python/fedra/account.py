"""What private training costs, before it is run: the numbers of `fedra account`.

    >>> import fedra
    >>> fedra.account.epsilon(q=0.01, sigma=1.0, steps=1000, delta=1e-5)["epsilon"] < 2.2
    True

`q` is the sampling rate of a batch, `sigma` the noise multiplier: the standard deviation of the noise over the clip norm.
Every epsilon is an upper bound.
"""

from ._fedra import epsilon, sigma, steps

__all__ = ["epsilon", "sigma", "steps"]

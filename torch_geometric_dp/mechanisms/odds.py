from decimal import Decimal, localcontext
from fractions import Fraction


def odds(epsilon: float | Decimal) -> Decimal:
    r""":math:`e^{\varepsilon}` to 80 digits. Epsilons above 36 count as 36:
    beyond that, 64-bit words would have too few values for the rare outputs.

    .. code-block:: python

        odds(0.0)   # 1
    """
    with localcontext(prec=80):
        return min(Decimal(epsilon), Decimal(36)).exp()


def log_ratio(ratio: Fraction) -> float:
    """The logarithm of an exact ratio.

    .. code-block:: python

        log_ratio(Fraction(1))   # 0.0
    """
    with localcontext(prec=60):
        return float((Decimal(ratio.numerator) / ratio.denominator).ln())

from decimal import Decimal, localcontext
from typing import Union


def odds(epsilon: Union[float, Decimal]) -> Decimal:
    r""":math:`e^{\varepsilon}` to 80 digits. Epsilons above 36 count as 36:
    beyond that, 64-bit words would have too few values for the rare outputs.

    .. code-block:: python

        odds(0.0)   # 1
    """
    with localcontext(prec=80):
        return min(Decimal(epsilon), Decimal(36)).exp()

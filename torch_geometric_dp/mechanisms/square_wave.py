r"""The Square Wave mechanism of Li et al. (SIGMOD 2020), on a fixed grid.

The same as :class:`Piecewise`, with a window of the width for which the output
tells most about the input, in bits. For values in :math:`[0, 1]`, the paper
releases a number in :math:`[-b, 1 + b]` that is :math:`e^{\varepsilon}` times
as likely within :math:`b` of the value as elsewhere, with

.. math::
    b = \frac{\varepsilon e^{\varepsilon} - e^{\varepsilon} + 1}
    {2 e^{\varepsilon} (e^{\varepsilon} - 1 - \varepsilon)}.

That is a window of a share :math:`2b / (1 + 2b)` of the range that moves
linearly with the value. The theorem and its proof hold for any width, and stand
in :mod:`torch_geometric_dp.mechanisms.piecewise`; the paper's floating point
numbers give the value away by their last bits, and the grid does not. Outputs
are scaled so that they are unbiased, from which the paper's own follow.
"""
from decimal import Decimal, localcontext

from torch_geometric_dp.mechanisms.piecewise import Piecewise


class SquareWave(Piecewise):
    r"""The Square Wave mechanism of Li et al.: a :class:`Piecewise` mechanism
    whose window tells most about the value, for estimates of a distribution.

    Args:
        epsilons (float or sequence of floats): The privacy loss of each
            column. At zero, the output is the middle of the bounds.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)

    .. code-block:: python

        mechanism = SquareWave([2.0, 0.5], bounds=(0.0, 1.0))
        noisy = mechanism(torch.rand(100, 2), NoiseSource.from_os())
        mechanism.variance(0.5)   # 0.1869...
    """
    def share(self, e: Decimal) -> float:
        """The share of the range that the window covers."""
        with localcontext(prec=80):
            likely = e * e.ln() - e + 1
            rest = e * (e - 1 - e.ln())
            # One half is the limit, which digits cannot show below that.
            return float(likely / (rest + likely)) if e > 1 + Decimal(
                '1e-15') else 0.5

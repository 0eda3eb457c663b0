r"""PM-SUB, the sub-optimal piecewise mechanism of Zhao et al. (IEEE Internet of
Things Journal 2021).

The same as :class:`Piecewise`, with a window of a share :math:`1/(t+1)` of the
range where :math:`t = e^{\varepsilon/3}` in place of :math:`e^{\varepsilon/2}`:
close to the width that makes the largest variance over all inputs smallest, for
which there is no simple formula. The theorem and its proof hold for any width,
and stand in :mod:`torch_geometric_dp.mechanisms.piecewise`.
"""
from torch_geometric_dp.mechanisms.piecewise import Piecewise


class PMSub(Piecewise):
    r"""The mechanism PM-SUB of Zhao et al.: a :class:`Piecewise` mechanism with
    a wider window.

    Args:
        epsilons (float or sequence of floats): The privacy loss of each
            column. At zero, the output is the middle of the bounds.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)

    .. code-block:: python

        mechanism = PMSub([2.0, 0.5], bounds=(0.0, 1.0))
        noisy = mechanism(torch.rand(100, 2), NoiseSource.from_os())
        mechanism.variance(0.5)   # 0.1607...
    """
    root = 3

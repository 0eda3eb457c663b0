r"""One secure source of random bits, and the exact samplers on top of it.

A :class:`NoiseSource` is the keystream of AES-256 in counter mode. It knows
nothing of privacy: it maps an address to random bits, and nobody without the
key can tell these bits from fair coins.

**Addresses.** A sampler asks for a grid of cells, and every cell owns its own
words of the stream, at a place given by its row and column alone. What comes
out therefore does not depend on block size, number of workers or partition.
Rejection never shifts the stream: whoever is rejected reads on in a derived
stream, at the address of the same cell.

**Errors.** With fair bits,

* :func:`uniform_integers` is exactly uniform, and an integer threshold (see
  :func:`threshold`) is hit with probability exactly ``threshold / 2**64``;
* :func:`sparse_bernoulli` tosses exactly independent coins, all with the same
  probability: the one asked for, rounded up by less than a part in ``2**60``
  of itself (and to ``2**-60`` at least);
* :func:`uniforms` is exactly uniform on the multiples of ``2**-53`` that lie
  strictly between 0 and 1;
* :func:`discrete_laplace` returns every integer :math:`z` with a probability
  within a factor of :math:`1 \pm (1 + |z|/s) 2^{-50}` of the ideal one, where
  :math:`s` is the scale, and :func:`discrete_gaussian` within
  :math:`1 \pm (1 + z^2/\sigma^2) 2^{-48}`: acceptance probabilities are
  rounded to doubles, and what is rare is split into several steps that are
  not, and keep their relative precision. Two outcomes' odds are
  therefore off by less than :math:`10^{-12}` wherever an outcome has a chance
  of more than :math:`2^{-1000}`.
  Scales are rounded *up* to a multiple of :math:`2^{-30}` of themselves, so
  there is never less noise than asked for.
"""
from torch_geometric_dp.noise.coins import (
    bernoulli,
    sparse_bernoulli,
    threshold,
    uniform_integers,
    uniforms,
)
from torch_geometric_dp.noise.discrete import (
    discrete_gaussian,
    discrete_laplace,
)
from torch_geometric_dp.noise.source import (
    WORD,
    NoiseSource,
    Words,
    block_rows,
    grid,
)
from torch_geometric_dp.noise.threads import in_threads

__all__ = [
    'bernoulli',
    'block_rows',
    'discrete_gaussian',
    'discrete_laplace',
    'grid',
    'in_threads',
    'NoiseSource',
    'sparse_bernoulli',
    'threshold',
    'uniform_integers',
    'uniforms',
    'WORD',
    'Words',
]

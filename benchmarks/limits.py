"""The cheapest work that anybody must do for a result that is random in each
cell: as many secret bits as it holds, in fresh memory. They come from our own
source, which is faster than numpy's and torch's generators.
"""
DRAWS = 'as many secure bits'


def draws(source, like):
    """A function that draws as many bits as a tensor has."""
    return lambda: words(source, -(-like.nbytes // 8))


def words(source, count):
    """The first words of a source, as one array."""
    return next(source.blocks(1, count))[2]

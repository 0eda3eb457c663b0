r"""ProGAP (Sajadmanesh and Gatica-Perez, 2024) at the edge level, from its
equations. Features and labels are public.

A network grows by stages. Stage :math:`s` has the bases
:math:`X^{(i)} = \mathrm{base}_i(\tilde X^{(i-1)})` for :math:`i \leq s`, with
the features as :math:`\tilde X^{(-1)}`, and a head of its own over all of
:math:`X^{(0)}, \dots, X^{(s)}` side by side (jumping knowledge). Bases go on
from the weights of the stage before, and are trained further. After a stage,
the sum :math:`\tilde X^{(s)} = A^T \mathrm{normalise}(X^{(s)}) + N` is
released, once, and kept for all stages that follow. So :math:`K` sums make
:math:`K + 1` stages. Noise and sensitivity are those of `benchmarks.gap`.
"""
import torch

from benchmarks.gap import DELTA, EPOCHS, HOPS, WIDTH, NoisySums, learn, network


class Stage(torch.nn.Module):
    """The network of one stage; `bases` are shared by all of them."""
    def __init__(self, bases, classes):
        super().__init__()
        self.bases = torch.nn.ModuleList(bases)
        self.head = network(len(bases) * WIDTH, classes)

    def forward(self, *rows):
        rows = [base(x) for base, x in zip(self.bases, rows)]
        return self.head(torch.cat(rows, dim=1))


def progap(data, epsilon, seed, hops=HOPS, counted='undirected', delta=DELTA,
           epochs=EPOCHS):
    """The classes of all nodes. As in the paper, the number of sums is the best
    one on the validation labels; trying several is not paid for, which is in
    favour of ProGAP.
    """
    results = [_grow(data, epsilon, seed, number, counted, delta, epochs)
               for number in hops]
    return max(results, key=lambda result: result[0])[1]


def _grow(data, epsilon, seed, hops, counted, delta, epochs):
    torch.manual_seed(seed)
    classes = int(data.y.max()) + 1
    sums = NoisySums(data, epsilon, hops, seed, delta, counted)
    bases, kept = [], [data.x]
    for stage in range(hops + 1):
        bases.append(network(kept[-1].size(1), WIDTH, WIDTH, plain_last=False))
        model = Stage(bases, classes)
        score = learn(model, kept, data, epochs)
        if stage < hops:
            with torch.no_grad():
                kept.append(sums(bases[-1](kept[-1])))
    with torch.no_grad():
        return score, model(*kept).argmax(dim=1)

"""Neighbour votes for whole people: rows, labels and edges are all private, and
one budget pays for the base and for the votes.
"""
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_geometric_dp.graph.pairs import Pairs, degrees
from torch_geometric_dp.mechanisms.node_votes import STEPS, NodeVotes
from torch_geometric_dp.nn.models.class_sum_classifier import (
    ClassSumClassifier,
)
from torch_geometric_dp.nn.models.private_model import (
    PrivateModel,
    edge_pairs,
)
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.release import Part

if TYPE_CHECKING:
    from torch_geometric_dp.nn.models.neighbour_votes import NeighbourVotes

# Fixed numbers, the same for every graph.
_COUNT, _BASE = 0.02, 0.13  # Their shares of the budget, if there is a vote.
_LEAST = 1.0  # What neighbours say, in deviations of the noise, to be asked.
_AGREE = 0.5  # More votes are for a node's own class than for another.


def node_level_scores(model: 'NeighbourVotes', data: Any) -> Tensor:
    """Counts, learns the base, asks for votes where these are worth it, and
    weighs them: the logarithms of the chances of all classes.
    """
    mask, y = model.labels(data)
    x = model.features(data, model.in_channels)
    if not mask.any():
        raise ValueError(f"'{model.mask}' must select at least one node")
    pairs, _ = edge_pairs(data, '')
    n, most = len(y), model.max_degree
    if most is not None and degrees(pairs, n).max(initial=0) > most:
        raise ValueError(f"'max_degree' must be larger: some nodes have more "
                         f"edges than {most}. 'BoundDegree' removes some")
    known = torch.where(mask, y, -1).cpu()
    base = ClassSumClassifier(model.in_channels, model.num_classes,
                              model.epsilon, model.delta, relation='replace',
                              clip=model.clip)
    # The same, dense or sparse; what is refused is refused before the charge.
    rows = base.checked_rows(x)
    votes = NodeVotes(model.epsilon, model.mechanism.delta, model.edges, most,
                      1 + base.cells + n * model.num_classes)
    part = Part(model, PrivateModel, votes.guarantee, ('x', 'y', 'edge_index'),
                (('num_nodes', None), (model.mask, None)))
    source = model.admit(data, [part], [
        ('x', (rows.crow_indices(), rows.col_indices(), rows.values())),
        ('y', (y[mask], )), (model.mask, (mask, )),
        ('edge_index', (torch.from_numpy(pairs), ))]).source
    share = _share_of_votes(votes, pairs, known, source)
    base.learn(x, y, mask, source.derive('base'), votes.multiplier
               / math.sqrt(1 - _COUNT - share[0]))
    score = base(x).log_softmax(dim=1)
    if share[0] > 0:
        heard = votes(pairs, known, model.num_classes, source.derive('votes'),
                      share[0])
        score = score + share[1] * heard * ~mask[:, None]
    out: Tensor = score.log_softmax(dim=1)
    return out


def _share_of_votes(votes: NodeVotes, pairs: Pairs, known: Tensor,
                    source: NoiseSource) -> tuple[float, float]:
    # The share of votes, and how much one is worth: nothing, where there are
    # too few. Both follow from the noisy number of pairs.
    count = votes.count(pairs, known, source.derive('count'), _COUNT)
    voters = int((known >= 0).sum())
    hearers = len(known) - voters
    if hearers == 0 or count <= 0:
        return 0.0, 0.0
    weight = min(1.0, math.sqrt(votes.reach * voters / count))
    signal = _AGREE * weight * count / hearers
    share = 1 - _COUNT - _BASE
    noise = votes.scale(len(known), share) / STEPS
    if signal < _LEAST * noise:
        return 0.0, 0.0
    # Votes as a Gaussian variable: the noise, and that of counts.
    return share, signal / (noise**2 + weight * signal)

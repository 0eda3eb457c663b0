"""The rows of RGNN's table: from a split graph to a prediction for all nodes.
None of them sees more than what was released.
"""
import torch
import torch.nn.functional as F
from torch_geometric.nn import GAT, GCN, GraphSAGE

from torch_geometric_dp.graph.propagation import (
    mean_adjacency,
    propagate,
)
from torch_geometric_dp.mechanisms import frequency_estimate
from torch_geometric_dp.nn import ForwardCorrectedLoss
from torch_geometric_dp.nn.models import RGNN, LabelDiffusion
from torch_geometric_dp.nn.models.released import released_labels
from torch_geometric_dp.nn.models.training import fit_early
from torch_geometric_dp.transforms import GRRFS, LabelRR, MultiBit

SAMPLED = 10  # The paper's m.
# Fewer where there are many neighbours; public, and the same for all epsilons.
HOPS = {'citeseer': 16, 'cora': 16, 'dblp': 8, 'facebook': 4, 'german': 2,
        'student': 2}
BACKBONES = {'GraphSAGE': GraphSAGE, 'GCN': GCN, 'GAT': GAT}
TRAINING = {'epochs': 100, 'patience': 20}


def release(data, epsilon_x, epsilon_y, seed, features='grrfs'):
    """What leaves the nodes; the ledger says at what cost."""
    classes = int(data.y.max()) + 1
    if features == 'grrfs':
        data = GRRFS.from_paper(epsilon_x, SAMPLED, domain_sizes=2,
                                seed=seed)(data)
    elif features == 'multi-bit':
        data = MultiBit(SAMPLED * epsilon_x, bounds=(0.0, 1.0),
                        num_sampled=SAMPLED, seed=seed)(data)
    else:
        data = data.clone()
        data.num_nodes = data.num_nodes  # Which `x` told so far.
        del data.x
    return LabelRR(epsilon_y, classes, mask='released', seed=seed)(data)


def backbone(data, name='GraphSAGE'):
    classes = data.privacy.releases[-1].parameter('num_classes')
    return BACKBONES[name](data.x.size(1), 16, 2, classes, dropout=0.5)


def rgnn(data, hops, alpha=1.0, num_bags=32, gnn='GraphSAGE'):
    hops_x, hops_y = hops if isinstance(hops, tuple) else (hops, hops)
    model = RGNN(backbone(data, gnn), hops_x, hops_y, alpha, num_bags,
                 **TRAINING)
    return model.fit(data).predict(data)


def noisy(data, hops):
    """The GNN, with features and labels as they were released."""
    return rgnn(data, (None, None), alpha=0.0)


def lpgnn(data, hops):
    """LPGNN: multi-bit features, averaged over some hops, and labels with
    forward correction.
    """
    y, response = released_labels(data)
    adjacency = mean_adjacency(data.edge_index, data.num_nodes)
    x = propagate(adjacency, data.x, hops)
    x = (x - x.mean(dim=0)) / x.std(dim=0).clamp(min=1e-6)
    loss = ForwardCorrectedLoss(response.epsilon, response.num_classes)
    train = y.masked_fill(data.val_mask, -1)
    held_out = y.masked_fill(~data.val_mask, -1)
    gnn = backbone(data)
    fit_early(gnn, (x, data.edge_index), lambda out: loss(out, train),
              lambda out: loss(out, held_out), **TRAINING)
    with torch.no_grad():
        return gnn(x, data.edge_index).argmax(dim=-1)


def feature_free(data, hops, restarts=(0.2, 0.1, 0.05, 0.02)):
    """Released labels without their bias, propagated over the graph with
    restarts; of the probabilities of a restart, the one that does best on the
    released labels for validation.
    """
    y, response = released_labels(data)
    adjacency = mean_adjacency(data.edge_index, data.num_nodes)
    # The symmetric normalisation, by weights for the labels.
    weight = adjacency.crow_indices().diff().float().rsqrt()[:, None]
    one_hot = F.one_hot(y.clamp(min=0), response.num_classes).float()
    z = frequency_estimate(one_hot, float(response.keep),
                           float(response.other)) * weight

    def diffuse(start, restart):
        out = start
        for _ in range(int(4 / restart)):
            out = (1 - restart) * (adjacency @ out) + restart * start
        return out

    def score(restart):
        train = z * (data.train_mask & (y >= 0))[:, None]
        guess = diffuse(train, restart).argmax(dim=-1)
        return float((guess == y)[data.val_mask].float().mean())

    best = max(restarts, key=score)
    return diffuse(z * (y >= 0)[:, None], best).argmax(dim=-1)


def majority(data, hops):
    """The most frequent class, by the released labels."""
    y = released_labels(data)[0]
    return torch.full_like(y, int(y[y >= 0].bincount().argmax()))


def label_diffusion(data, hops):
    return LabelDiffusion().fit(data).predict(data)


# What each row needs of the features, and how it predicts.
MODELS = {
    'majority class': (None, majority),
    'GraphSAGE on noisy data': ('grrfs', noisy),
    'LPGNN': ('multi-bit', lpgnn),
    'RGNN': ('grrfs', rgnn),
    'feature-free': (None, feature_free),
    'LabelDiffusion': (None, label_diffusion),
}


def accuracy(prediction, data):
    """The only place where a true label of a test node is read."""
    right = (prediction == data.y)[data.test_mask]
    return float(right.float().mean())

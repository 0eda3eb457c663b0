"""One recipe to train a two-layer GCN, for all accuracy tables."""
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN


def accuracy(data, seed, epochs=80, patience=25):
    """Test accuracy, at the epoch with the best validation accuracy.

    Columns are standardised first: they are released, so that is free, and no
    mechanism wins by the scale of its output.
    """
    torch.manual_seed(seed)
    x = data.x - data.x.mean(dim=0)
    x = x / x.std(dim=0).clamp(min=1e-6)
    model = GCN(x.size(1), 32, 2, int(data.y.max()) + 1, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02,
                                 weight_decay=5e-4)
    train, y = data.train_mask, data.y
    best, result, wait = -1.0, 0.0, 0
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, data.edge_index)[train], y[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = model(x, data.edge_index).argmax(dim=1) == y
        score, wait = float(right[data.val_mask].float().mean()), wait + 1
        if score > best:
            best, wait = score, 0
            result = float(right[data.test_mask].float().mean())
        if wait > patience:
            break
    return result

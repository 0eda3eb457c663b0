from importlib import import_module
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.attacks.attack import Attack, check_graph
from torch_geometric_dp.attacks.known_nodes import (
    Neighbourhood,
    known_nodes,
    rows,
    same_nodes,
)
from torch_geometric_dp.attacks.report import (
    AttackReport,
    ScoredReport,
    metrics,
    scored_numbers,
)

_MOST_VALUES = 32  # With a column of their own.
_FOLDS = 3
_STRENGTHS = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)  # The larger, the weaker.

Array = NDArray[np.float64]


class AttributeInference(Attack):
    r"""Infers one sensitive attribute of nodes from a release and from their
    neighbours.

    The attacker knows the attribute of some nodes, and learns to tell it from
    the released row of a node (with the released attribute itself, if there is
    one), the mean of the released rows of its neighbours, and the attribute of
    those neighbours that they know. What tells it best, by the likelihood of
    known nodes that were left out, is applied to all others: logistic
    regression or, for two values, boosted trees, on all of this or on a part.
    The numbers are

    * the accuracy of the likeliest value;
    * the balanced accuracy, that is the mean over all values, of the value
      whose likelihood grows most over how frequent it is;
    * for attributes with two values, the area under the curve, and the true
      positives at 1% of false positives, for the larger one.

    The baseline is an attacker without the release: they guess the value that
    is most frequent among the known nodes or, if the edges are public, learn
    from the attribute of known neighbours alone. Where like is joined to like,
    that is a lot, and no release of features can take it back.

    Args:
        field (str, optional): The node field that holds the attribute, such as
            :obj:`"x"` or :obj:`"y"`. (default: :obj:`"x"`)
        column (int, optional): The column of the field, if it has several.
            (default: :obj:`0`)
        above (float, optional): A public number: whether the value is above
            it is the attribute. Needed for values that are not integers.
            (default: :obj:`None`)
        withhold (bool, optional): If set to :obj:`True`, the attacker is not
            shown the released attribute, as if it had been left out.
            (default: :obj:`False`)
        known (str, optional): The name of a boolean node field of the raw
            graph: the nodes whose attribute the attacker knows.
            (default: :obj:`"train_mask"`)
        neighbours (bool, optional): If set to :obj:`True`, the edges of the
            released graph are public, and the attacker uses them.
            (default: :obj:`True`)
        seed (int, optional): Which known nodes are left out in turn, and the
            start of the trees. (default: :obj:`0`)

    .. code-block:: python

        attack = AttributeInference(column=2, above=0.5)
        report = attack.run(FeatureRR(4.0, bounds=(0.0, 1.0))(data), data)
        print(report)
        report['AUC'], report.baseline['AUC']
        ax = report.plot()
    """
    def __init__(self, field: str = 'x', column: int = 0,
                 above: float | None = None, withhold: bool = False,
                 known: str = 'train_mask', neighbours: bool = True,
                 seed: int = 0) -> None:
        self.field = field
        self.column = check_integer('column', column, 0)
        self.above = None if above is None else _finite('above', above)
        self.withhold = bool(withhold)
        self.known = known
        self.neighbours = bool(neighbours)
        self.seed = check_integer('seed', seed, 0)
        metrics()  # Missed now, and not after an hour.

    def run(self, target: Data, data: Data) -> AttackReport:
        """Infers the attribute of all nodes that the attacker does not know.

        Args:
            target (Data): The released graph: the same nodes, in the same
                order. Features, labels or edges may be missing in it.
            data (Data): The raw graph.
        """
        truth = self._attribute(data).numpy()
        known = known_nodes(data, self.known)
        released, shown = self._released(target, data)
        values, counts = np.unique(truth[known], return_counts=True)
        if len(values) < 2 or counts.min() < 2:
            raise ValueError(
                f"'{self.known}' must select two nodes at least for each of "
                f"two or more values of '{self.field}' (got "
                f"{dict(zip(values.tolist(), counts.tolist()))})")
        knew = [f'{self._what(data)}, for {int(known.sum())} of {len(known)} '
                f'nodes']
        everything = torch.cat([released, shown], dim=1)
        public, options = torch.empty(len(truth), 0), [shown, everything]
        if self.neighbours:
            knew.append('the edges of the target')
            near = Neighbourhood(target, len(truth))
            hot = torch.from_numpy(truth[:, None] == values).double()
            public = torch.cat(near.known_mean(hot, known), dim=1)
            options.append(torch.cat([everything, near.mean(everything)], 1))
        options = [torch.cat([inputs, public], dim=1) for inputs in options]
        mask = known.numpy()
        loss, guessed = self._infer([public], truth, mask)
        likely = self._infer(options, truth, mask, (loss, guessed))[1]
        hidden, frequent = truth[~mask], counts / counts.sum()
        numbers = _accuracy(likely, frequent, values, hidden)
        baseline = _accuracy(guessed, frequent, values, hidden)
        if len(values) > 2:
            return AttackReport(repr(self), numbers, baseline, tuple(knew))
        positive = hidden == values[1]
        if positive.all() or not positive.any():
            raise ValueError(f"'{self.field}' must have two values among the "
                             f"nodes that '{self.known}' leaves to attack "
                             f"(got {hidden[0]:g} for all of them)")
        numbers |= scored_numbers(positive, likely[:, 1])
        baseline |= scored_numbers(positive, guessed[:, 1])
        return ScoredReport(repr(self), numbers, baseline, tuple(knew),
                            positive, likely[:, 1], guessed[:, 1])

    def _column(self, data: Any, name: str) -> Tensor:
        matrix = rows(data, name, self.field)
        if self.column >= matrix.size(1):
            raise ValueError(f"'column' must lie below {matrix.size(1)}, the "
                             f"number of columns of '{self.field}' in "
                             f"'{name}' (got {self.column})")
        return matrix[:, self.column]

    def _what(self, data: Data) -> str:
        what = f"'{self.field}'"
        if data[self.field].dim() > 1:
            what = f'column {self.column} of {what}'
        return what if self.above is None else (
            f'whether {what} is above {self.above:g}')

    def _attribute(self, data: Data) -> Tensor:
        values = self._column(data, 'data')
        if self.above is not None:
            return (values > self.above).double()
        if not bool((values == values.round()).all()):
            row = int((values != values.round()).int().argmax())
            raise ValueError(f"'above' must be given, as '{self.field}' holds "
                             f"more than integers (got {values[row]:g} in "
                             f"row {row})")
        return values

    def _released(self, target: Data, data: Data) -> tuple[Tensor, Tensor]:
        # The released row of each node without the attribute, and that: as a
        # number and, if it has few values, with a column for each of them.
        check_graph(target, 'target')
        raw, shown = rows(data, 'data', self.field), self.field in target
        # Labels may be all that is released, or edges.
        out = (rows(target, 'target') if 'x' in target else
               torch.empty(len(raw), 0, dtype=torch.double))
        same_nodes(out, raw)
        if self.field == 'x':
            # Other columns than the raw ones: none of them is the attribute.
            shown = out.size(1) == raw.size(1)
            out = out[:, torch.arange(out.size(1)) != (
                self.column if shown else -1)]
        if self.withhold or not shown:
            return out, out[:, :0]
        attribute = self._column(target, 'target')[:, None]
        same_nodes(attribute, raw, self.field)
        values = torch.from_numpy(np.unique(attribute.numpy()))
        hot = (attribute == values[:_MOST_VALUES]).double()
        return out, torch.cat([attribute, hot], dim=1)

    def _infer(self, options: list[Tensor], truth: Array,
               known: NDArray[np.bool_],
               best: tuple[float, Array] | None = None,
               ) -> tuple[float, Array]:
        # The likelihood of each value for each node that is not known, by the
        # model that says most about known ones that were left out, and how
        # much that is; if none beats it, the best so far.
        classes = truth[known]
        index, counts = np.unique(classes, return_inverse=True,
                                  return_counts=True)[1:]
        if best is None:
            frequent = counts / counts.sum()
            best = (-np.log(frequent[index]).mean(),
                    np.tile(frequent, (int((~known).sum()), 1)))
        folds = _sklearn('model_selection').StratifiedKFold(
            min(_FOLDS, counts.min()), shuffle=True, random_state=self.seed)
        for matrix in options:
            if matrix.size(1) == 0:
                continue
            spread = matrix.std(dim=0, correction=0)
            inputs = ((matrix - matrix.mean(dim=0)) / torch.where(
                spread > 1e-9, spread, 1.0)).numpy()
            # Trees take long, and find for themselves what they need.
            trees = matrix is options[-1] and len(counts) == 2
            for model in _models(self.seed, trees):
                left_out = _sklearn('model_selection').cross_val_predict(
                    model, inputs[known], classes, cv=folds,
                    method='predict_proba')
                told = left_out[np.arange(len(classes)), index]
                loss = -np.log(told.clip(min=1e-6)).mean()
                if loss < best[0]:
                    model.fit(inputs[known], classes)
                    best = loss, model.predict_proba(inputs[~known])
        return best


def _finite(name: str, value: Any) -> float:
    if not isinstance(value, Real) or not isfinite(value):
        raise ValueError(f"'{name}' must be a finite number (got {value!r})")
    return float(value)


def _accuracy(likely: Array, frequent: Array, values: Array,
              truth: Array) -> dict[str, float]:
    right = values[likely.argmax(axis=1)] == truth
    fair = values[(likely / frequent).argmax(axis=1)] == truth
    return {'accuracy': float(right.mean()),
            'balanced accuracy': float(np.mean(
                [fair[truth == value].mean() for value in np.unique(truth)]))}


def _models(seed: int, trees: bool) -> list[Any]:
    models = [_sklearn('linear_model').LogisticRegression(C=c, max_iter=1000)
              for c in _STRENGTHS]
    if trees:
        models.append(_sklearn('ensemble').HistGradientBoostingClassifier(
            max_iter=30, random_state=seed))
    return models


def _sklearn(name: str) -> Any:
    return import_module(f'sklearn.{name}')

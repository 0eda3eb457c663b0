from abc import ABC, abstractmethod
from typing import Any

from torch_geometric.data import Data
from torch_geometric.data.data import BaseData

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp.attacks.report import AttackReport


class Attack(Captured, ABC):
    r"""The base of all attacks: what an attacker knows before is in the
    arguments, and what they may touch is the target.

    An attack measures what one attacker finds out, and so bounds what is
    leaked from below. That it finds nothing is no proof of privacy: proofs
    stand beside the mechanisms, and :func:`torch_geometric_dp.audit.audit`
    tries to break them.

    .. code-block:: python

        class Guess(Attack):
            def run(self, target, data):
                guess = (target.x[:, 0] > 0.5) == (data.x[:, 0] > 0.5)
                return AttackReport('Guess', {'accuracy': float(
                    guess.float().mean())}, {'accuracy': 0.5}, ('nothing', ))

        print(Guess().run(data, data))
    """
    @abstractmethod
    def run(self, target: Any, data: Data) -> AttackReport:
        """Attacks a target, and compares what came out with the truth.

        Args:
            target (Any): What the attacker may touch: a model that answers,
                or a graph that was released.
            data (Data): The raw graph. The attacker sees no more of it than
                the report says that they knew.
        """


def check_graph(data: Any, name: str) -> None:
    """Raises an error that names what should be a graph of one kind of nodes.

    .. code-block:: python

        check_graph(Data(num_nodes=3), 'data')
    """
    if not isinstance(data, Data):
        raise TypeError(f"'{name}' must be a graph, an instance of 'Data' "
                        f"(got '{type(data).__name__}')")


def check_model(model: Any, name: str) -> None:
    """Raises an error that names what should answer questions.

    .. code-block:: python

        check_model(torch.nn.Linear(3, 2), 'target')
    """
    # A graph can be called, too, but does not answer.
    if not callable(model) or isinstance(model, BaseData):
        raise TypeError(f"'{name}' must give a model, which is a function "
                        f"(got '{type(model).__name__}')")

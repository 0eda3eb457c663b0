"""Attacks on released graphs and on models: what one can really find out."""
from torch_geometric_dp.attacks.attack import Attack
from torch_geometric_dp.attacks.attribute_inference import AttributeInference
from torch_geometric_dp.attacks.feature_reconstruction import (
    FeatureReconstruction,
    ReconstructionReport,
)
from torch_geometric_dp.attacks.link_teller import LinkTeller
from torch_geometric_dp.attacks.membership_inference import MembershipInference
from torch_geometric_dp.attacks.report import AttackReport, ScoredReport

__all__ = [
    'Attack',
    'AttackReport',
    'AttributeInference',
    'FeatureReconstruction',
    'LinkTeller',
    'MembershipInference',
    'ReconstructionReport',
    'ScoredReport',
]

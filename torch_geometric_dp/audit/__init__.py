"""Tries to prove us wrong: exactly where outputs can be listed, and by trial
elsewhere.
"""
from torch_geometric_dp.audit.audit import audit
from torch_geometric_dp.audit.canaries import canaries
from torch_geometric_dp.audit.clopper_pearson import (
    epsilon_from_trials,
    lower_limit,
)
from torch_geometric_dp.audit.distinguisher import Distinguisher
from torch_geometric_dp.audit.one_run import epsilon_from_guesses
from torch_geometric_dp.audit.report import AuditReport, PrivacyViolation
from torch_geometric_dp.audit.verify_exactly import (
    ExactPrivacy,
    verify_exactly,
)
from torch_geometric_dp.mechanisms import largest_loss

__all__ = [
    'audit',
    'AuditReport',
    'canaries',
    'Distinguisher',
    'epsilon_from_guesses',
    'epsilon_from_trials',
    'ExactPrivacy',
    'largest_loss',
    'lower_limit',
    'PrivacyViolation',
    'verify_exactly',
]

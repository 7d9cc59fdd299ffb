"""Gossip algorithms in edge form: per edge and per message, for fixed and changing graphs."""

from edgesim.gossip.algorithm import Algorithm, GossipState, OutEdge, Place, Share
from edgesim.gossip.all_reduce import AllReduce
from edgesim.gossip.bagua_decentralized import BaguaDecentralized
from edgesim.gossip.bagua_low_precision import BaguaLowPrecision
from edgesim.gossip.beer import Beer
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_iclr import ChocoIclr
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.d2 import D2
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fed_avg import FedAvg
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.global_update_tracking import GlobalUpdateTracking
from edgesim.gossip.gradient_push import GradientPush
from edgesim.gossip.gradient_tracking import GradientTracking
from edgesim.gossip.momentum_tracking import MomentumTracking
from edgesim.gossip.relay_sgd import RelaySgd

__all__ = [
    "D2",
    "Algorithm",
    "AllReduce",
    "BaguaDecentralized",
    "BaguaLowPrecision",
    "Beer",
    "Choco",
    "ChocoIclr",
    "ChocoNumerator",
    "Dcd",
    "DeepSqueeze",
    "FedAvg",
    "FixedGraphChoco",
    "GlobalUpdateTracking",
    "GossipState",
    "GradientPush",
    "GradientTracking",
    "MomentumTracking",
    "OutEdge",
    "Place",
    "RelaySgd",
    "Share",
]

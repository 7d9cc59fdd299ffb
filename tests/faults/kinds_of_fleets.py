"""The fleets that are run under faults, as scenarios: one of each kind."""

from __future__ import annotations

CHOCO = {
    "algorithm": "choco",
    "averaging_rate": 0.2,
    "compressor": {"kind": "top_k", "keep": 0.1},
}

BASE = {
    "name": "faults",
    "seed": 5,
    "fleet": {"devices": 4},
    "topology": {"kind": "directed_ring"},
    "data": {
        "source": "digits",
        "train_samples": 60,
        "partition": {"kind": "label_skew", "skew": 0.8},
        "batch_size": 4,
    },
    "model": {"name": "small_cnn"},
    "training": {"rounds": 8, "optimizer": {"lr": 0.05}},
    "gossip": CHOCO,
    "evaluation": {"every_rounds": 3, "samples": 10},
}

SQUEEZE = {
    "algorithm": "deepsqueeze",
    "averaging_rate": 0.2,
    "compressor": {"kind": "random_k", "keep": 0.2},
}
SLOW_AND_FAST = [
    {"profile": "raspberry-pi-4b", "count": 2},
    {"profile": "raspberry-pi-zero-2w", "count": 1},
    {"profile": "jetson-nano", "count": 2},
]
FREE = {"devices": SLOW_AND_FAST, "pace": "free"}
QUICK_RADIO = {"bandwidth_mbps": 300.0}  # so that there is a message in most rounds
QUICK_NETWORK = {"latency_ms": 0.05, "jitter_ms": 0.3, "loss": 0.1, "packet_bytes": 200}


def boards(batteries_wh=(), **more):
    """Two slow boards, a slower one and two quick ones, some with a battery of so many Wh."""
    names = ["raspberry-pi-4b"] * 2 + ["raspberry-pi-zero-2w"] + ["jetson-nano"] * 2
    devices = [{"profile": name, "radio": QUICK_RADIO, **more} for name in names]
    for device, battery_wh in batteries_wh:
        devices[device]["battery_wh"] = battery_wh
    return devices


TIMED_CHURN = {  # a round takes from 0.1 to 1 ms
    "absent": [{"device": 1, "from_s": 0.001, "until_s": 0.0022}],
    "joins": [{"device": 3, "at_s": 0.0004}, {"device": 0, "at_s": 0.0007}],
    "leaves": [{"device": 4, "at_s": 0.001}],
    "random": {"absence_probability": 0.15, "mean_absence_s": 0.001},
}
JITTER = {"bandwidth_mbps": 0.35, "latency_ms": 4.0, "jitter_ms": 3.0, "loss": 0.05}

KINDS = {
    "ring": {},
    "ring squeezed": {"gossip": SQUEEZE},
    "irregular": {"fleet": {"devices": 5}, "topology": {"kind": "exponential"}},
    "dcd": {
        "topology": {"kind": "ring"},
        "gossip": {"algorithm": "dcd", "compressor": {"kind": "top_k", "keep": 0.3}},
    },
    "push": {
        "topology": {"kind": "erdos_renyi", "probability": 0.6},
        "gossip": {"algorithm": "gradient_push", "averaging_rate": 0.5},
    },
    "star": {"topology": {"kind": "star"}},  # push weights move in lockstep
    "numerator": {  # the published form, in two buffers
        "topology": {"kind": "star"},
        "gossip": {**CHOCO, "algorithm": "choco_numerator"},
    },
    "matching": {"topology": {"kind": "random_matching"}},
    "one peer squeezed": {"topology": {"kind": "one_peer_exponential"}, "gossip": SQUEEZE},
    "clocks": {"fleet": {"devices": SLOW_AND_FAST}, "network": JITTER},
    "churn": {
        "fleet": {
            "devices": 5,
            "churn": {
                "absent": [{"device": 1, "from_round": 2, "until_round": 5}],
                "joins": [{"device": 3, "round": 3}],
            },
        },
        "topology": {"kind": "complete"},
    },
    "leaving": {
        "fleet": {"devices": 4, "churn": {"leaves": [{"device": 2, "round": 3}]}},
        "topology": {"kind": "ring"},
        "training": {"rounds": 11, "optimizer": {"lr": 0.05}},
    },
    "leaving late": {  # after more rounds than the mailboxes of an edge and its sender hold
        "fleet": {"devices": 4, "churn": {"leaves": [{"device": 2, "round": 20}]}},
        "topology": {"kind": "ring"},
        "training": {"rounds": 28, "optimizer": {"lr": 0.05}},
    },
    "local steps": {  # the end is between two exchanges
        "gossip": {**CHOCO, "local_steps": 3},
        "training": {"rounds": 11, "optimizer": {"lr": 0.05}},
    },
    "leaving after local steps": {
        "fleet": {"devices": 4, "churn": {"leaves": [{"device": 2, "round": 3}]}},
        "topology": {"kind": "ring"},
        "gossip": {**SQUEEZE, "local_steps": 2},
        "training": {"rounds": 17, "optimizer": {"lr": 0.05}},
    },
    "leaving a matching": {
        "fleet": {"devices": 4, "churn": {"leaves": [{"device": 2, "round": 3}]}},
        "topology": {"kind": "random_matching"},
        "training": {"rounds": 14, "optimizer": {"lr": 0.05}},
    },
    "successors that leave": {
        "fleet": {
            "devices": 5,
            "churn": {
                "absent": [{"device": 0, "from_round": 6, "until_round": 9}],
                "leaves": [{"device": 2, "round": 3}, {"device": 3, "round": 4}],
            },
        },
        "topology": {"kind": "one_peer_exponential"},
        "gossip": {"algorithm": "gradient_push", "averaging_rate": 0.5},
        "training": {"rounds": 20, "optimizer": {"lr": 0.05}},
    },
    "free": {"fleet": FREE, "topology": {"kind": "exponential"}, "network": JITTER},
    "free numerator": {
        "fleet": FREE,
        "topology": {"kind": "star"},
        "gossip": {**CHOCO, "algorithm": "choco_numerator"},
        "network": JITTER,
    },
    "free squeezed half-duplex": {
        "fleet": FREE,
        "topology": {"kind": "ring"},
        "gossip": SQUEEZE,
        "network": {**JITTER, "half_duplex": True},
    },
    "free changing": {
        "fleet": FREE,
        "topology": {"kind": "one_peer_exponential"},
        "gossip": {"algorithm": "gradient_push", "averaging_rate": 0.5},
        "network": {"bandwidth_mbps": 5.0},
    },
    "free churn": {
        "fleet": {"devices": boards(), "pace": "free", "churn": TIMED_CHURN},
        "topology": {"kind": "complete"},
        "network": QUICK_NETWORK,
        "training": {"rounds": 16, "optimizer": {"lr": 0.02}},
    },
    "free batteries": {
        "fleet": {
            "devices": boards([(0, 5.5e-6), (2, 3.2e-6), (4, 2.2e-6)]),
            "pace": "free",
            "presumed_dead_after_s": 0.0004,
        },
        "topology": {"kind": "exponential"},
        "network": QUICK_NETWORK,
        "training": {"rounds": 16, "optimizer": {"lr": 0.02}},
    },
    "free churn and batteries": {
        "fleet": {
            "devices": boards([(1, 4.5e-6), (3, 2.0e-6)]),
            "pace": "free",
            "churn": TIMED_CHURN,
            "presumed_dead_after_s": 0.0,
            "duty_cycle": {"period_s": 0.0009, "awake_s": 0.0006},
        },
        "topology": {"kind": "complete"},
        "gossip": SQUEEZE,
        "network": {**QUICK_NETWORK, "half_duplex": True},
        "training": {"rounds": 40, "virtual_time_s": 0.008, "optimizer": {"lr": 0.02}},
        "evaluation": {"every_virtual_s": 0.001, "samples": 10},
    },
    "free and all die": {
        "fleet": {
            "devices": boards([(0, 4e-6), (1, 7e-6), (2, 3e-6), (3, 1.5e-6), (4, 2.5e-6)]),
            "pace": "free",
            "presumed_dead_after_s": 0.0004,
        },
        "topology": {"kind": "one_peer_exponential"},
        "gossip": {"algorithm": "gradient_push", "averaging_rate": 0.5},
        "network": {**QUICK_NETWORK, "half_duplex": True},
        "training": {"rounds": 30, "optimizer": {"lr": 0.02}},
    },
    "free until": {
        "fleet": FREE,
        "topology": {"kind": "exponential"},
        "training": {"rounds": 16, "virtual_time_s": 0.006, "optimizer": {"lr": 0.01}},
        "evaluation": {"every_virtual_s": 0.002, "samples": 10},
    },
    # methods for skewed data, and baselines whose average takes several exchanges
    "beer": {
        "topology": {"kind": "ring"},
        "gossip": {**CHOCO, "algorithm": "beer", "local_steps": 2},
        "training": {"rounds": 9, "optimizer": {"lr": 0.05}},
    },
    "gradient tracking": {"gossip": {"algorithm": "gradient_tracking"}},
    "momentum tracking": {
        "gossip": {"algorithm": "momentum_tracking"},
        "training": {"rounds": 8, "optimizer": {"lr": 0.02, "nesterov": False}},
    },
    "d2": {"topology": {"kind": "ring"}, "gossip": {"algorithm": "d2", "averaging_rate": 0.9}},
    "gut": {
        "topology": {"kind": "ring"},
        "gossip": {"algorithm": "gut", "options": {"mu": 0.06, "momentum": 0.9}},
        "training": {"rounds": 8, "optimizer": {"lr": 0.05, "momentum": 0, "nesterov": False}},
    },
    "choco of 2020": {"topology": {"kind": "ring"}, "gossip": {**CHOCO, "algorithm": "choco_iclr"}},
    "relay": {"topology": {"kind": "chain"}, "gossip": {"algorithm": "relay_sgd"}},
    "all-reduce": {
        "gossip": {"algorithm": "all_reduce"},
        "training": {"rounds": 18, "optimizer": {"lr": 0.05}},
        "evaluation": {"every_rounds": 6, "samples": 10},
    },
    "fedavg": {
        "topology": {"kind": "star"},
        "gossip": {"algorithm": "fedavg", "local_steps": 2, "participation": 0.5},
        "training": {"rounds": 12, "optimizer": {"lr": 0.05}},
        "evaluation": {"every_rounds": 3, "samples": 10},
    },
    "bagua": {
        "topology": {"kind": "ring"},
        "gossip": {"algorithm": "bagua_low_precision"},
        "training": {"rounds": 8, "optimizer": {"lr": 0.05}},
    },
}

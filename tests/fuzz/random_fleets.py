"""Random scenarios of small fleets, drawn from most keys that change a training.

About one in six is refused, since its keys do not go together.
"""

from __future__ import annotations

from small_fleets import small_scenario

PROFILES = ("raspberry-pi-4b", "raspberry-pi-5", "raspberry-pi-zero-2w", "jetson-nano")
PARTITIONS = (
    {"kind": "iid"},
    {"kind": "label_skew", "skew": 0.8},
    {"kind": "dirichlet", "alpha": 0.5},
)
TWO_WAYS = ("ring", "torus", "complete", "star", "chain", "random_regular")
ANY_GRAPH = (
    *TWO_WAYS,
    "directed_ring",
    "exponential",
    "one_peer_exponential",
    "random_matching",
    "rotating",
    "cycle",
)
ON_ANY_GRAPH = ("choco", "choco_numerator", "deepsqueeze", "gradient_push")
GRAPHS = {  # that an algorithm can use, which needs the same devices in each round
    "all_reduce": ("directed_ring",),
    "bagua_decentralized": ("complete",),
    "bagua_low_precision": ("ring",),
    "beer": ("ring", "directed_ring", "complete", "exponential"),
    "choco_iclr": TWO_WAYS,
    "d2": TWO_WAYS,
    "dcd": TWO_WAYS,
    "fedavg": ("star",),
    "gradient_tracking": ("ring", "directed_ring", "complete", "exponential"),
    "gut": TWO_WAYS,
    "momentum_tracking": ("ring", "directed_ring", "complete", "exponential"),
    "relay_sgd": ("chain", "star"),
}
IN_SEVERAL_ROUNDS = ("all_reduce", "bagua_decentralized", "bagua_low_precision", "fedavg")
SYMMETRIC = ("choco_iclr", "d2", "dcd", "gut")
STEPS_APART = (  # that may take several steps between two exchanges
    *(*ON_ANY_GRAPH, "dcd", "fedavg", "bagua_low_precision", "bagua_decentralized"),
    *("beer", "choco_iclr", "d2", "gradient_tracking", "gut", "momentum_tracking", "relay_sgd"),
)


def drawn(rng):
    """A scenario, which may be refused."""
    algorithm = rng.choice(sorted(GRAPHS) + 4 * sorted(ON_ANY_GRAPH))
    steady = algorithm in GRAPHS
    n = rng.choice((2, 3, 4, 4, 6, 6, 8))
    free = not steady and rng.random() < 0.4
    profiles = free or rng.random() < 0.4
    whole = algorithm in IN_SEVERAL_ROUNDS
    if whole:
        n = min(n, 4)
    rounds = 12 if whole else rng.randint(2, 9)
    training = {"rounds": rounds, "device_seeds": rng.choice(("own", "own", "shared"))}
    training["optimizer"] = _optimizer(rng)
    evaluation = {"every_rounds": rounds if whole else rng.choice((1, 2, 3, 5)), "samples": 8}
    if free and rng.random() < 0.6:
        training["virtual_time_s"] = rng.choice((0.002, 0.02, 0.2))
        del evaluation["every_rounds"]
        evaluation["every_virtual_s"] = training["virtual_time_s"] / rng.choice((1, 3))
    evaluation["device_models"] = rng.choice(("every", "final", "never"))
    churn = not steady and rng.random() < 0.35
    if not free and not churn and evaluation["device_models"] != "never" and rng.random() < 0.2:
        evaluation["gossip_rounds"] = 2
    if rng.random() < 0.2:
        evaluation["own_samples"] = 3
    data = {
        "train_samples": rng.randint(8 * n, 16 * n),
        "batch_size": rng.choice((1, 3, 4, 8)),
        "partition": rng.choice(PARTITIONS),
        "augment": rng.choice(("none", "none", "crop_flip")),
    }
    if profiles and rng.random() < 0.5:  # full batches
        data |= {"train_samples": 3 * n * data["batch_size"], "partition": {"kind": "iid"}}
    fleet = _fleet(rng, n, free=free, profiles=profiles, steady=steady)
    if churn:
        fleet["churn"] = _churn(rng, n, rounds, free=free)
        if free and rng.random() < 0.4:
            fleet["presumed_dead_after_s"] = 0.01
    document = small_scenario(
        seed=rng.randint(0, 999),
        fleet=fleet,
        topology=_topology(rng, algorithm, n),
        data=data,
        model=_model(rng, rng.choice(("fp32", "fp32", "int8"))),
        training=training,
        evaluation=evaluation,
        recovery={"checkpoint_every_rounds": rng.choice((1, 2, 3))},
    )
    if "every_rounds" not in evaluation:
        del document["evaluation"]["every_rounds"]
    if profiles and rng.random() < 0.6:
        document["network"] = _network(rng)
    document["gossip"] = _gossip(rng, algorithm)
    if rng.random() < 0.15:
        document["data"]["validation_samples"] = 60
    return document


def _fleet(rng, n, *, free, profiles, steady):
    fleet = {"devices": n}
    if profiles:
        groups, left = [], n
        while left:
            many = rng.randint(1, left)
            groups.append({"profile": rng.choice(PROFILES), "count": many})
            left -= many
        fleet["devices"] = groups
        if rng.random() < 0.2:
            fleet["compute_jitter"] = 0.2
        if rng.random() < 0.15:
            fleet["duty_cycle"] = {"period_s": 0.05, "awake_s": 0.02}
        if not steady and rng.random() < 0.2:
            groups[0]["battery_wh"] = rng.choice((1e-6, 1e-5, 1e-4))
    if free:
        fleet["pace"] = "free"
    return fleet


def _churn(rng, n, rounds, *, free):
    churn = {}

    def at(key):
        if free:
            return {f"{key}_s" if key != "round" else "at_s": rng.choice((0.0005, 0.002, 0.01))}
        return {"round" if key == "round" else f"{key}_round": rng.randint(1, max(1, rounds - 1))}

    if rng.random() < 0.4:
        start = at("from")
        ((key, value),) = start.items()
        until = key.replace("from", "until")
        more = value * 2 if free else value + rng.randint(1, 3)
        churn["absent"] = [{"device": rng.randrange(n), **start, until: more}]
    if rng.random() < 0.4:
        churn["joins"] = [{"device": rng.randrange(n), **at("round")}]
    if rng.random() < 0.4:
        churn["leaves"] = [{"device": rng.randrange(n), **at("round")}]
    if not churn or rng.random() < 0.3:
        mean = {"mean_absence_s": 0.002} if free else {"mean_absence_rounds": 2.0}
        churn["random"] = {"absence_probability": 0.2, **mean}
    return churn


def _network(rng):
    network = {}
    for key, values in {
        "bandwidth_mbps": (1.0, 50.0),
        "latency_ms": (1.0, 20.0),
        "jitter_ms": (1.0,),
        "loss": (0.05, 0.3),
        "half_duplex": (True,),
    }.items():
        if rng.random() < 0.5:
            network[key] = rng.choice(values)
    return network


def _topology(rng, algorithm, n):
    kind = rng.choice(GRAPHS.get(algorithm, ANY_GRAPH))
    if (kind == "rotating" and n != 8) or (kind == "torus" and n < 4):
        kind = "complete"
    more = {
        "random_regular": {"degree": 2 if n > 2 else 1},
        "random_matching": {"hold": rng.choice((1, 2))},
        "cycle": {"graphs": [{"kind": "ring"}, {"kind": "directed_ring"}], "hold": 2},
    }
    topology = {"kind": kind, **more.get(kind, {})}
    if algorithm in SYMMETRIC or (kind in TWO_WAYS and rng.random() < 0.2):
        topology["weights"] = "metropolis"
    return topology


def _model(rng, precision):
    model = {"precision": precision}
    if rng.random() < 0.3:
        model |= {"name": "resnet", "depth": 8, "width": 8}
        if precision == "fp32":
            model["norm"] = rng.choice(("batch", "group", "evonorm_s0", "range_evonorm"))
        else:
            model["norm"] = rng.choice(("range_evonorm", "range_batch"))
    if precision == "int8" and rng.random() < 0.5:
        model["quantization"] = {
            "zero_point": rng.choice(("integer", "float_offset")),
            "activation_rounding": rng.choice(("nearest", "stochastic")),
            "ranges": rng.choice(("local", "gossiped")),
        }
        if model["quantization"]["zero_point"] == "integer":
            model["quantization"]["weight_range"] = rng.choice(("per_tensor", "per_out_channel"))
    return model


def _optimizer(rng):
    kind = rng.choice(("sgd", "sgd", "sgd", "adam", "quasi_global_adam"))
    optimizer = {"kind": kind, "lr": 0.02}
    if kind == "sgd" and rng.random() < 0.6:
        optimizer |= {
            "momentum": rng.choice((0.0, 0.9)),
            "nesterov": rng.random() < 0.5,
            "weight_decay": rng.choice((0.0, 1e-4)),
            "momentum_kind": rng.choice(("local", "quasi_global")),
        }
        if optimizer["momentum"] == 0:
            optimizer |= {"nesterov": False, "momentum_kind": "local"}
    return optimizer


def _gossip(rng, algorithm):
    gossip = {"algorithm": algorithm}
    if algorithm in ("beer", "choco", "choco_numerator", "deepsqueeze"):
        gossip["averaging_rate"] = rng.choice((0.05, 0.2, 1.0))
        gossip["compressor"] = _compressor(rng)
    elif algorithm == "dcd" and rng.random() < 0.7:
        gossip["compressor"] = _compressor(rng)
    elif algorithm == "choco_iclr":
        gossip["averaging_rate"] = 0.2
    elif algorithm == "gradient_push":
        gossip["values"] = rng.choice(("fp32", "fp16", "int8"))
    elif algorithm == "fedavg":
        gossip["participation"] = rng.choice((1.0, 0.5))
    elif algorithm == "bagua_decentralized":
        gossip["peers"] = rng.choice(("all", "shift_one"))
    if algorithm.startswith("bagua") and rng.random() < 0.3:
        gossip["sites"] = 2
    if algorithm in STEPS_APART and rng.random() < 0.4:
        gossip["local_steps"] = rng.choice((2, 3))
    return gossip


def _compressor(rng):
    kind = rng.choice(("identity", "top_k", "random_k", "qsgd", "min_max_uint8", "sign_scale"))
    compressor = {"kind": kind}
    if kind in ("top_k", "random_k"):
        compressor["keep"] = rng.choice((0.01, 0.1, 0.5))
    if kind == "qsgd":
        compressor["bits"] = rng.choice((2, 4))
    if kind in ("qsgd", "min_max_uint8", "sign_scale") and rng.random() < 0.4:
        compressor["bucket_size"] = rng.choice((2, 64, 512))
    if kind in ("identity", "top_k", "random_k") and rng.random() < 0.4:
        compressor["values"] = rng.choice(("fp16", "int8"))
    return compressor

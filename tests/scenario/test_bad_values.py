"""Each wrong value of a file or an override gives one line: place, key, value, remedy."""

from pathlib import Path

import pytest
from test_scenario_files import LEAST, error_of, write


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (
            "lr: 0.1",
            "lr: 1e-3",
            (
                "x.yaml:11: training.optimizer.lr is the text '1e-3'; "
                "YAML reads a number only with a point: write 1.0e-3"
            ),
        ),
        ("lr: 0.1", "lr: 2E4", "YAML reads a number only with a point: write 2.0e+4"),
        ("lr: 0.1", "lr: '0.1'", "must be a number in [1e-30, 1e+30]: write 0.1 without quotes"),
        ("lr: 0.1", "lr: 0", "x.yaml:11: training.optimizer.lr is 0; must be a number in [1e-30"),
        ("lr: 0.1", "lr: .nan", "training.optimizer.lr is nan; must be a number in [1e-30"),
        ("lr: 0.1", "lr: .inf", "training.optimizer.lr is inf; must be a number in [1e-30"),
        ("lr: 0.1", "lr: true", "training.optimizer.lr is true; must be a number in [1e-30"),
        ("lr: 0.1", "lr:", "training.optimizer.lr is empty; must be a number in [1e-30"),
        ("    lr: 0.1", "    kind: sgd", "x.yaml:10: training.optimizer.lr is missing; must be"),
        (
            "lr: 0.1",
            "lr: 0.1\n    momentum: 1.0",
            "x.yaml:12: training.optimizer.momentum is 1.0; must be a number in [0, 1)",
        ),
        (
            "lr: 0.1",
            "lr: 0.1\n    nesterov: 1",
            "training.optimizer.nesterov is 1; must be true or false",
        ),
        (
            "{devices: 4}",
            "{devices: -3}",
            "x.yaml:2: fleet.devices is -3; must be a whole number ",
        ),
        ("{devices: 4}", "{devices: 4.0}", "x.yaml:2: fleet.devices is 4.0; must be a whole"),
        ("{devices: 4}", "{devices: yes}", "x.yaml:2: fleet.devices is true; must be a whole"),
        ("{devices: 4}", "{devices: 010}", "x.yaml:2: fleet.devices is the text '010'; must be"),
        ("{devices: 4}", "{devices: 1:30}", "fleet.devices is the text '1:30'; must be a whole"),
        (
            "{devices: 4}",
            "{devices: 4, devices_per_actor: all}",
            "fleet.devices_per_actor is the text 'all'; must be a whole number from 1 to",
        ),
        (
            "{kind: iid}",
            "{kind: label_skew, skew: 1.4}",
            "x.yaml:5: data.partition.skew is 1.4; must be a number in [0, 1]",
        ),
        ("{kind: iid}", "{kind: label_skew}", "data.partition.skew is missing; must be a number"),
        ("{kind: iid}", "{skew: 1}", "data.partition.kind is missing; must be one of label_skew,"),
        ("{kind: iid}", "{kind: dirichlet, alpha: 0}", "alpha is 0; must be a number in [1e-06"),
        ("batch_size: 8", "batch_size: -8", "data.batch_size is -8; must be a whole number"),
        ("{kind: iid}", "{knd: iid}", "data.partition.knd is an unknown key; did you mean kind?"),
        ("algorithm:", "algoritm:", "gossip.algoritm is an unknown key; did you mean algorithm?"),
        ("batch_size: 8", "batchsize: 8", "data.batchsize is an unknown key; did you mean batch_"),
        (
            "averaging_rate: 1}",
            "averaging_rate: 1, compressor: {kind: top_k, keep: 0}}",
            "x.yaml:12: gossip.compressor.keep is 0; must be a number in (0, 1]",
        ),
        (
            "averaging_rate: 1}",
            "averaging_rate: 1, compressor: {kind: identity, keep: 1}}",
            "gossip.compressor.keep is an unknown key of kind: identity; known: kind, values",
        ),
        (
            "averaging_rate: 1}",
            "averaging_rate: 1, compressor: {kind: qsgd, bits: 8}}",
            "gossip.compressor.bits is 8; must be a whole number from 1 to 7",
        ),
        *(
            (
                "averaging_rate: 1}",
                f"averaging_rate: 1, compressor: {{{kind}, bucket_size: 1}}}}",
                "gossip.compressor.bucket_size is 1; must be a whole number from 2 to ",
            )
            for kind in ("kind: qsgd, bits: 4", "kind: min_max_uint8", "kind: sign_scale")
        ),
        (
            "averaging_rate: 1}",
            "averaging_rate: 1, compressor: {kind: top_k, keep: 0.1, bucket_size: 512}}",
            "gossip.compressor.bucket_size is an unknown key of kind: top_k; known: kind, keep",
        ),
        ("averaging_rate: 1}", "averaging_rate: 1.4}", "gossip.averaging_rate is 1.4; must be a"),
        ("choco, averaging_rate: 1", "dcd, averaging_rate: 1", "unknown key of algorithm: dcd"),
        (
            "name: small_cnn",
            "name: resnet21",
            (
                "model.name is the text 'resnet21'; must be one of resnet20, resnet54, resnet18, "
                "vgg11, mobilenet_v2, small_cnn, resnet, distilbert, encoder, "
                "mlp, or package.module:Name or ./file.py:Name; did you mean resnet20?"
            ),
        ),
        ("{kind: ring}", "{kind: rng}", "topology.kind is the text 'rng'; must be one of "),
        (
            "{kind: ring}",
            "{kind: rings}",
            "trace, cycle, or package.module:Name or ./file.py:Name; did you mean ring?",
        ),
        (
            "name: least",
            "name: least\nhardware: {profiles: [{name: a, layer_times: [{layer: sgd_updat}]}]}",
            "profiles[0].layer_times[0].layer is the text 'sgd_updat'; must be one of first_con",
        ),
        ("{kind: ring}", "{kind: [ring]}", "topology.kind is a list; must be one of directed_"),
        ("{kind: ring}", "ring", "topology is the text 'ring'; must be a mapping with the key"),
        ("{kind: ring}", "ring", "did you mean {kind: ring}?"),
        ("{kind: ring}", "", "topology is empty; must be a mapping with the key kind: one of"),
        (
            "{kind: ring}",
            "{kind: cycle, graphs: [{kind: ring}, {kind: rotating}]}",
            "x.yaml:3: topology.graphs[1].kind is the text 'rotating'; must be one of",
        ),
        (
            "{kind: ring}",
            "{kind: cycle, graphs: []}",
            "topology.graphs is an empty list; must be a list",
        ),
        ("{kind: ring}", "{kind: file, path: ''}", "topology.path is the text ''; must be the"),
        ("name: least", "name: Least!", "x.yaml:1: name is the text 'Least!'; must be lower-case"),
        ("name: least", "name: no", "x.yaml:1: name is false; must be lower-case letters"),
        ("name: least", "nmae: least", "x.yaml:1: nmae is an unknown key; did you mean name?"),
        ("model:", "sweep: {seeds: 3}\nmodel:", "x.yaml:7: sweep makes this a file of"),
        ("fleet:", "<<: {seed: 1}\nfleet:", "x.yaml:2: << is an unknown key; known: name"),
        (
            "epochs: 1",
            "epochs: 1\n  schedule: {milestones: [3, 2]}",
            "x.yaml:10: training.schedule.milestones has 2 after 3; must increase",
        ),
        (
            "epochs: 1",
            "epochs: 1\n  rounds: 2",
            "x.yaml:10: training.rounds is set beside epochs; give one of the two",
        ),
    ],
)
def test_a_wrong_value_in_a_file_is_refused_in_one_line(
    old: str, new: str, error: str, tmp_path: Path
):
    assert old in LEAST
    message = error_of(write(tmp_path, LEAST.replace(old, new)))
    assert error in message
    assert message.startswith("x.yaml:")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("override", "error"),
    [
        (
            "training.optimizer.lr=1e-3",
            (
                "training.optimizer.lr is the text '1e-3'; "
                "YAML reads a number only with a point: write 1.0e-3"
            ),
        ),
        ("fleet.devices=-3", "fleet.devices is -3; must be a whole number from 1 to 10000"),
        ("seed.x=1", "seed is a mapping; must be a whole number from 0 to 9"),
        ("lr=0.1", "lr is an unknown key; did you mean training.optimizer.lr?"),
        ("gosip.averaging_rate=1", "gosip is an unknown key; did you mean gossip?"),
        ("fleet.recovery=3", "fleet.recovery is an unknown key; known: devices, profile, "),
        (
            "fleet.profile=stm32",
            "fleet.profile is stm32, which is no profile; did you mean arduino-portenta-h7?",
        ),
        (
            "fleet.profile=nrf52840",
            (
                "fleet.profile is nrf52840, which is no profile; see `edgesim list devices`, or "
                "describe it under hardware.profiles (docs/own-device.md)"
            ),
        ),
        (
            "data.source=readings.csv",
            (
                "data.source is the text 'readings.csv'; must be one of digits, cifar10, "
                "cifar100, fashion_mnist, imagenette, image_folder, parquet, ag_news, sent_len, "
                "femnist, shakespeare, table, or package.module:Name or ./file.py:Name; a CSV or "
                "Parquet file of your own is data.path of table, and a class or function reads "
                "all else (docs/own-dataset.md)"
            ),
        ),
        (
            "fleet.profile=raspbery-pi-4",
            "fleet.profile is raspbery-pi-4, which is no profile; did you mean raspberry-pi-4b or",
        ),
        ("fleet.devices=[{count: 2}]", "fleet.devices[0].profile is missing; must be lower-case"),
        (
            "fleet.devices=[{profile: gap9, count: 0}]",
            "fleet.devices[0].count is 0; must be a whole number from 1 to 10000",
        ),
        (
            "fleet.devices=[{profile: gap9, battery_wh: 0}]",
            "fleet.devices[0].battery_wh is 0; must be a number in [1e-06, 1e+09] or plugged",
        ),
        (
            "fleet.devices=[{profile: gap9, memory: 4}]",
            "fleet.devices[0].memory is an unknown key; the unit is missing: write memory_mib",
        ),
        (
            "fleet.devices=[{profile: gap9, fp32_gmacs_per_s: -1}]",
            "fleet.devices[0].fp32_gmacs_per_s is -1; must be a number in [1e-06,",
        ),
        ("fleet.compute_jitter=0.1", "fleet.compute_jitter is set, but devices have no profile"),
        ("network.latency_ms=5", "network is set, but devices have no radios; name their fleet"),
        ("network.bandwidth=5", "network.bandwidth is an unknown key; the unit is missing: write"),
        ("network.loss=1", "network.loss is 1; must be a number in [0, 0.99]"),
        (
            "fleet.devices=[{profile: gap9, compute_jitter: 1000}]",
            "fleet.devices[0].compute_jitter is 1000; must be a number in [0, 3] or null",
        ),
        (
            "fleet.devices=[{profile: gap9, memory_mib: 1.0e-8}]",
            "fleet.devices[0].memory_mib is 1e-08; must be a number in [1e-06, 1e+09] or null",
        ),
        ("hardware.energy_table=jouppi_7nm", "hardware is set, but no device has a profile"),
        (
            "hardware.profiles=[{name: gap9, based_on: gap9}]",
            "hardware.profiles[0].name is gap9, the name of a profile of `edgesim list devices`",
        ),
        (
            "hardware.profiles=[{name: mine, based_on: gap8}]",
            "hardware.profiles[0].based_on is gap8, which is no profile of `edgesim list",
        ),
        (
            "hardware.profiles=[{name: a, based_on: gap9}, {name: b, based_on: a}]",
            "hardware.profiles[1].based_on is a, one of your own profiles; it can only be one of",
        ),
        (
            "hardware.profiles=[{name: mine, memory_mib: 1}]",
            "hardware.profiles[0].int8_gmacs_per_s is missing; a profile without based_on needs",
        ),
        ("topology={}", "topology.kind is missing; must be one of directed_ring, "),
        ("seed=", "seed is empty; must be a whole number from 0 to 9"),
        ("seed=[", "not valid YAML: "),
        ("seed=!!int 1", "the tag !!int is not allowed; write the plain value"),
        (f"seed={'9' * 5000}", "a number with too many digits"),
        ("seed", "write it as key.path=value, for example --set training.epochs=10"),
        ("a..b=1", "write it as key.path=value"),
        ("=1", "write it as key.path=value"),
        ("data.path=~no-such-user/x", "path is '~no-such-user/x'; no path can look so"),
    ],
)
def test_a_wrong_override_is_refused_in_one_line(override: str, error: str, tmp_path: Path):
    message = error_of(write(tmp_path, LEAST), override)
    shown = override if len(override) <= 120 else f"{override[:117]}..."
    assert message.startswith(f"--set {shown}: {error}")
    assert "\n" not in message


def test_of_many_problems_two_are_told_and_the_others_counted(tmp_path: Path):
    text = LEAST + "one: 1\ntwo: 2\nthree: 3\nseed: -1\nevaluation: 3\n"
    lines = error_of(write(tmp_path, text)).splitlines()
    assert [line.partition(" is ")[0] for line in lines] == ["x.yaml:13: one", "x.yaml:14: two"]
    assert lines[1].endswith(" (and 3 more)")


def test_ten_thousand_problems_are_two_lines_too(tmp_path: Path):
    text = LEAST + "".join(f"x{number}: 1\n" for number in range(10_000))
    first, second = error_of(write(tmp_path, text)).splitlines()
    assert first.startswith("x.yaml:13: x0 is an unknown key")
    assert second.endswith(" (and 9998 more)")


def test_what_a_message_quotes_is_one_line_and_short(tmp_path: Path):
    long = "description: 3\nline: 2\x1b[2J" + "a" * 1000
    for message in (
        error_of(write(tmp_path, LEAST), f"description={{{long}: 1}}"),
        error_of(write(tmp_path, LEAST), f"{'k' * 5000}=1"),
        error_of(write(tmp_path, LEAST + f'"a\\n{"b" * 3000}": 1\n')),
    ):
        assert len(message.splitlines()) == 1
        assert len(message) < 600
        assert message.isprintable()


def test_a_misspelt_key_is_not_also_reported_as_missing(tmp_path: Path):
    message = error_of(write(tmp_path, LEAST.replace("topology:", "toplogy:")))
    assert message == "x.yaml:3: toplogy is an unknown key; did you mean topology?"


def test_long_values_are_quoted_in_part(tmp_path: Path):
    message = error_of(write(tmp_path, LEAST.replace("small_cnn", "x" * 1000)))
    assert len(message) < 250

"""What a report says equals what its run recorded."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import vl_convert
from reported_runs import content, table, train

import edgesim
from edgesim.report.ends import device_table
from edgesim.report.evaluations import own_metrics
from edgesim.report.report import report_page, write_report
from edgesim.report.runs import load_runs
from edgesim.report.summary import in_short, results_table
from edgesim.report.troubles import troubles
from edgesim.report.units import energy
from edgesim.report.waiting import pace_setters

DEAD = "</script>"  # a name that would end a script


@pytest.fixture(scope="module")
def run(place):
    return edgesim.load_run(place)


def text_of(page):
    """Text of the page without its scripts."""
    body = page[page.index("<body>") : page.index("<noscript>")]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))


def test_data_of_the_accuracy_figure_are_the_evaluations(page, run):
    ours = table(page, "accuracy")
    expected = run.evaluations.reset_index(drop=True)
    pd.testing.assert_frame_equal(
        ours[list(expected.columns)], expected, check_dtype=False, check_exact=True
    )


def test_an_evaluation_has_what_the_fleet_had_sent_and_spent(page, run):
    ours = table(page, "accuracy").query("model == 'consensus'")
    for _, row in ours.iterrows():
        until = run.rounds[run.rounds["round"] < row["round"]]
        assert row["fleet_sent_bytes"] == until["sent_bytes"].sum()
        assert row["fleet_energy_j"] == pytest.approx(until["energy_j"].sum(), rel=1e-12)
    assert ours["fleet_sent_bytes"].iloc[-1] == run.summary["sent_bytes"]


def test_seconds_of_activities_are_those_of_the_rounds(page, run):
    seconds = table(page, "time-of-devices", "times").pivot_table(
        index="name", columns="activity", values="seconds"
    )
    by_name = run.rounds.groupby("name")
    for activity, column in (("computing", "virtual_compute_s"), ("waiting", "virtual_wait_s")):
        np.testing.assert_allclose(seconds[activity], by_name[column].sum(), rtol=1e-5)
    shares = table(page, "time-of-fleet")
    whole = shares.groupby("time_s")["share"].sum()
    np.testing.assert_allclose(whole, 1.0, atol=1e-5)
    width_s = run.summary["virtual_time_s"] / len(whole)
    waited_s = shares.query("activity == 'waiting'")["share"].sum() * width_s * 4
    assert waited_s == pytest.approx(run.rounds["virtual_wait_s"].sum(), rel=1e-4)


def test_who_waited_for_whom_adds_up_to_all_waiting(page, run):
    waits = table(page, "waits")
    assert waits["waited_s"].sum() == pytest.approx(run.rounds["virtual_wait_s"].sum(), rel=1e-5)
    # After it has left its messages are sent by another, who is then waited for.
    by_address = run.rounds.query("waited_for_name == @DEAD")
    of_another = run.messages.query("name != @DEAD and sender_name == @DEAD")
    by_itself = by_address[~by_address["round"].isin(of_another["round"])]
    assert len(by_itself) < len(by_address)
    for_it = waits.query("waited_for_name == @DEAD")["waited_s"].sum()
    assert for_it == pytest.approx(by_itself["virtual_wait_s"].sum(), rel=1e-5)


def test_the_critical_path_is_as_long_as_the_run(page, run, place):
    """Also past a board that left, whose successor sends what it held."""
    (reported,) = load_runs([place])
    found = pace_setters(reported)
    assert found.whole_s == pytest.approx(run.summary["virtual_time_s"])
    assert found.away_s == 0
    of_messages = sum(own_s for (one, other), own_s in found.links.items() if one != other)
    share = of_messages / run.summary["virtual_time_s"]
    assert f"What set the pace of the fleet: messages {100 * share:.3g} %" in text_of(page)


def test_of_several_runs_closing_figures_say_what_set_the_pace_of_each(place):
    (run,) = load_runs([place])
    devices = device_table(run)
    (line,) = [text for text in in_short(run, devices) if text.startswith("What set the pace")]
    of_two = {row[0]: row[1:] for row in results_table([run, run], [devices, devices]).rows}
    parts = of_two["what set the pace"]
    assert f"What set the pace of the fleet: {parts[0]} of the time." == line
    assert parts[0] == parts[1]
    assert "what set the pace" not in {row[0] for row in results_table([run], [devices]).rows}


def test_the_steps_of_a_slow_board_set_the_pace_where_links_are_fast(tmp_path):
    quick = "network.latency_ms=0", "gossip.compressor={kind: top_k, keep: 0.001}"
    devices = (
        "fleet.devices=[{profile: raspberry-pi-4b, count: 3}, {profile: raspberry-pi-zero-2w}]"
    )
    (run,) = load_runs([train(tmp_path, *quick, devices, "training.rounds=5")])
    (link, seconds), *_ = pace_setters(run).links.items()
    assert link == (3, 3)
    assert seconds > 0.7 * run.run.summary["virtual_time_s"]


def test_the_timeline_is_made_of_the_rounds_and_messages(page, run):
    spans = table(page, "timeline")
    first = run.rounds.query("name == 'attic' and round == 0").iloc[0]
    spans = spans[spans["part"] == spans["part"].iloc[0]]
    own = spans.query("name == 'attic' and round == 0").set_index("activity")
    assert own.loc["computing", "end_s"] == pytest.approx(first["virtual_compute_s"])
    assert own.loc["waiting", "end_s"] == pytest.approx(first["virtual_time_s"])
    assert own.loc["waiting", "peer"] == first["waited_for_name"]
    sent = run.messages.query("sender_name == 'attic' and round == 0")
    pd.testing.assert_series_equal(
        own.loc["sending", "end_s"].sort_values(),
        sent["sent_time_s"].sort_values(),
        check_index=False,
        check_names=False,
        rtol=1e-6,
    )


def test_the_battery_that_ended_is_said_and_drawn(page, run):
    last = run.rounds.query("name == @DEAD").iloc[-1]
    assert run.summary["left_after_round"] == {"3": int(last["round"])}
    wrong = text_of(page).split("In short")[0]
    assert last["charge_left_j"] < 0
    left = f"overdrawn by {energy(-last['charge_left_j'])}"
    assert "left because its battery would not have lasted to its next turn to leave" in wrong
    assert left in wrong
    handover = run.messages.query("kind == 'handover'").iloc[0]
    successor = run.scenario.fleet.names[handover["receiver"]]
    assert f"; {successor} took its place, without its samples." in wrong
    assert f"after {int(last['round']) + 1} rounds" in wrong
    charge = table(page, "charge")
    assert charge["charge_left_j"].iloc[-1] == pytest.approx(last["charge_left_j"], rel=1e-6)
    assert charge["virtual_time_s"].iloc[-1] == pytest.approx(last["virtual_time_s"], rel=1e-6)


def test_lost_packets_are_said_with_the_worst_link(page, run):
    sums = ["retransmitted_bytes", "retransmissions", "bytes"]
    links = run.messages.groupby(["sender_name", "receiver_name"])[sums].sum()
    assert (links["retransmissions"] >= 20).any()
    shares = links.query("retransmissions >= 20").eval("retransmitted_bytes / bytes")
    said = html.unescape(text_of(page))
    worst = f"{' -> '.join(shares.idxmax())}, {100 * shares.max():.3g} %"
    assert f"on the worst, {worst}" in said.split("In short")[0]
    assert "of lost packets were sent again" in said.split("In short")[1]


@pytest.mark.parametrize(("influence", "is_said"), [([0.9, 1.3], False), ([0.5, 1.5], True)])
def test_devices_that_count_unlike_are_named(place, influence, is_said):
    (run,) = load_runs([place])
    devices = run.run.devices.iloc[:2].assign(influence=influence)
    free = replace(run, run=replace(run.run, devices=devices))
    said = [line for line in troubles(free, device_table(run)) if "counted unlike" in line]
    first, second = run.labels[:2]
    sentence = (
        f"Devices counted unlike in the averaged model: {first} 0.5 times and {second} 1.5 times "
        "the mean."
    )
    assert said == [sentence] * is_said


def test_chance_on_a_link_of_few_packets_is_no_trouble(place):
    """One of a handful of packets is a fifth of them; the fleet as a whole lost next to none."""
    (run,) = load_runs([place])
    messages = run.run.messages.assign(retransmissions=0, retransmitted_bytes=0)
    one = messages.index[0]
    messages.loc[one, "retransmissions"] = 1
    messages.loc[one, "retransmitted_bytes"] = messages["bytes"].iloc[0]
    lucky = replace(run, run=replace(run.run, messages=messages))
    assert not any("lost packets" in line for line in troubles(lucky, device_table(lucky)))


def test_a_device_whose_rounds_are_not_written_yet_ends_no_report(place):
    """The others have waited for it; an unfinished run may lack all of its rounds."""
    (run,) = load_runs([place])
    for device in range(4):  # some of them lie on the critical path of the rest
        rest = run.run.rounds.query("device != @device")
        found = pace_setters(replace(run, run=replace(run.run, rounds=rest)))
        assert found.whole_s == pytest.approx(rest["virtual_time_s"].max())


def test_totals_are_no_measures_of_a_task(place):
    (run,) = load_runs([place])
    assert "total_messages_sent" in run.evaluations
    assert own_metrics(run) == []


def test_the_page_loads_nothing_from_elsewhere(page):
    body = page[: page.index('id="report-content"')]
    assert "http" not in body.replace("http-equiv", "")
    assert not re.search(r'<(script|img|link)[^>]+(src|href)="(?!data:)', body)
    assert "default-src 'none'" in page


def test_a_name_ends_no_script_and_is_no_markup(page):
    assert page.count("</script>") == 3
    assert "a &lt;small&gt; fleet &amp; its report" in page
    assert DEAD in set(table(page, "accuracy")["name"])


def test_every_drawing_is_sound(page):
    """Vega-Lite compiles each of them, with its data."""
    found = content(page)
    assert {"accuracy", "loss", "consensus-distance", "timeline"} <= found["figures"].keys()
    for key, figure in found["figures"].items():
        for spec in figure["views"]:
            whole = spec | {
                "$schema": found["schema"],
                "width": 600,
                "datasets": {n: found["tables"][t] for n, t in figure["tables"].items()},
            }
            svg = vl_convert.vegalite_to_svg(whole)
            assert len(re.findall(r"mark-(?:line|rect|symbol|area|rule|text)", svg)) > 1, key
            assert "NaN" not in svg, key


def test_a_report_lies_in_its_run_and_may_be_written_again(place):
    written, num_bytes = write_report([place])
    assert written == f"{place}/report.html"
    assert (place / "report.html").stat().st_size == num_bytes
    assert write_report([place]) == (written, num_bytes)
    edgesim.load_run(place)


def test_a_radio_sends_only_while_its_device_is_awake(tmp_path):
    """A message takes longer than a board is awake at a time, so each send has a sleep within."""
    place = train(tmp_path, "fleet.duty_cycle={period_s: 0.03, awake_s: 0.01}", "training.rounds=3")
    page, run = report_page(load_runs([place])), edgesim.load_run(place)
    sent = run.rounds.groupby("name")[["sent_bytes", "retransmitted_bytes"]].sum().sum(axis=1)
    devices = device_table(load_runs([place])[0]).set_index("name")
    np.testing.assert_allclose(devices["radio_busy_s"], (sent * 8 / 20e6)[devices.index])
    spans = table(page, "timeline").query("name == 'attic'")
    sends, sleeps = spans.query("activity == 'sending'"), spans.query("activity == 'asleep'")
    assert len(sends) > len(run.messages.query("name == 'attic'"))
    for sleep in sleeps.itertuples():
        assert not ((sends["start_s"] < sleep.end_s) & (sends["end_s"] > sleep.start_s)).any()

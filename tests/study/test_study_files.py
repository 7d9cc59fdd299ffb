"""What a study writes: JSON that equals the tables, figures that are SVG, a page of its own."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import asdict
from html.parser import HTMLParser

import pytest
from study_scenarios import INT8, MIXED, ROOT, as_if_long, small

from edgesim.costs.memory_table import MemoryTable
from edgesim.hardware.energy_tables import ENERGY_TABLES, HOROWITZ_45NM
from edgesim.study.errors import StudyError
from edgesim.study.figures.catalog_figures import memory_picture as memory_of_models
from edgesim.study.figures.fleet_figure import fleet_picture
from edgesim.study.figures.model_figures import memory_picture
from edgesim.study.iteration import iteration_costs
from edgesim.study.report import study, write_folder, write_json
from edgesim.study.tables.scenario_tables import scenario_tables
from edgesim.study.tables.table import is_heading
from edgesim.study.tables.units import percent, with_unit

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A mixed fleet in 8 bits beside the same one in fp32."""
    folder = tmp_path_factory.mktemp("study")
    with as_if_long():
        other = iteration_costs(small(folder, *MIXED))
        return study(small(folder, *MIXED, *INT8), other, all_models=False)


@pytest.fixture(scope="module")
def record(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "costs.json"
    write_json(found.record(), path)
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def written(found, tmp_path_factory):
    """Folder with its figures and the page, made with the folders above it."""
    folder = tmp_path_factory.mktemp("figures") / "below" / "it"
    names = ["compute", "memory", "message", "energy", "fleet", "compare"]
    paths = write_folder(found, folder)
    assert [path.name for path in paths] == [*(f"{name}.svg" for name in names), "index.html"]
    assert set(paths) == set(folder.iterdir())
    return folder


def test_names_of_devices_are_no_formulas_and_need_no_font(tmp_path, recwarn):
    names = ["$\\frac{1}{$", "农场", "c", "d"]
    fleet = {"devices": 4, "names": names, "profile": "raspberry-pi-4b"}
    scenario = small(tmp_path, f"fleet={json.dumps(fleet)}", *MIXED[1:])
    paths = write_folder(study(scenario, all_models=False), tmp_path / "figures")
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]
    assert len(paths) > 1


def numbers_in(value):
    """All numbers of a record."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for part in value for number in numbers_in(part)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


@pytest.mark.parametrize("place", range(1, 6))
def test_every_quantity_of_a_table_is_in_the_json(found, record, place):
    """Rounded as there: computing, memory, messages, energy, time."""
    table = scenario_tables(found.costs)[place]
    numbers = numbers_in(record["scenario"])
    known = {with_unit(number, unit) for number in numbers for unit in ("MiB", "B", "J", "s")}
    known |= {with_unit(number, unit) for number in numbers for unit in ("MAC", "ops")}
    known |= {percent(number) for number in numbers}
    cells = [cell for row in table.rows if not is_heading(row) for cell in row[1:]]
    quantities = [cell.removesuffix(" *") for cell in cells if re.match(r"[\d,.]+ [A-Za-z%]", cell)]
    assert len(quantities) >= 8
    assert not set(quantities) - known


def test_parts_of_the_json_add_up(record):
    for device in record["scenario"]["devices"]:
        work, memory = dict(device["work"]), device["memory"]
        total = work.pop("total")
        for key, count in total.items():
            assert count == sum(part[key] for part in work.values())
        for table in (dict(memory["faithful"]), dict(memory["paper"])):
            assert table.pop("total") == sum(table.values())
        for energy in device["energy"]:
            parts = ("compute_j", "memory_j", "radio_j", "idle_j")
            assert energy["total_j"] == pytest.approx(sum(energy[part] for part in parts))
        time = device["time"]
        assert time["roofline_s"] == max(time["arithmetic_s"], time["memory_s"])
    message = dict(record["scenario"]["message"]["encoded"])
    assert message.pop("total") == sum(message.values())


def test_the_keys_of_the_json_are_those_of_its_documentation(record):
    """docs/cost.md promises them; a new set of keys needs a new format."""
    assert record["format"] == 1
    assert list(record) == [
        *("format", "answer", "scenario", "comparison", "prices", "models", "other"),
        *("other_answer", "side_by_side"),
    ]
    device = record["scenario"]["devices"][0]
    assert list(device) == [
        *("device", "name", "profile", "messages_sent", "messages_received", "sent_bytes"),
        *("received_bytes", "work", "memory", "energy", "time"),
    ]
    assert list(device["work"]) == [
        *("forward", "input_gradient", "weight_gradient", "optimizer", "gossip", "total"),
    ]
    assert [d["device"] for d in record["scenario"]["devices"]] == [0, 1, 2, 3]
    assert [d["profile"] for d in record["scenario"]["devices"]][2:] == [
        *("raspberry-pi-4b", "raspberry-pi-zero-2w"),
    ]
    assert {ratio["topic"] for ratio in record["comparison"]["ratios"]} == {
        *("compute", "memory", "communication", "energy", "time"),
    }


def keys_of(value):
    """All keys of a record, but those that name components, tables or conventions."""
    if isinstance(value, list):
        return {key for part in value for key in keys_of(part)}
    if not isinstance(value, dict):
        return set()
    named = {*asdict(MemoryTable()), *asdict(HOROWITZ_45NM), *ENERGY_TABLES}
    return (value.keys() - named).union(*map(keys_of, value.values()))


def test_the_documentation_names_every_key(record):
    text = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    named = {
        word for quoted in re.findall(r"`[^`\n]+`", text) for word in re.findall(r"\w+", quoted)
    }
    keys = keys_of(record)
    assert len(keys) > 80
    assert not keys - named


def test_side_by_side_divides_the_two_scenarios(found, record):
    ours, theirs = (record[key]["devices"][0] for key in ("scenario", "other"))
    pairs = {(pair["topic"], pair["key"]): pair for pair in record["side_by_side"]}
    held = pairs["memory", "faithful_total"]
    assert held["first"] == ours["memory"]["faithful"]["total"]
    assert held["second"] == theirs["memory"]["faithful"]["total"]
    assert held["ratio"] == held["first"] / held["second"]
    assert pairs["compute", "macs_int8"]["ratio"] is None  # there is none in fp32
    by_width = pairs["compute", "macs_by_width"]
    macs = ours["work"]["total"]
    assert by_width["first"] == (8 * macs["macs_int8"] + 32 * macs["macs_fp32"]) / 32
    assert pairs["fleet", "period_s"]["first"] == record["scenario"]["fleet"]["rhythm"]["period_s"]
    assert "small / other" in [table.title for table in found.short_tables()]


def test_a_scenario_beside_itself_differs_in_nothing(tmp_path):
    costs = iteration_costs(small(tmp_path, *MIXED))
    pairs = study(small(tmp_path, *MIXED), costs, all_models=False).pairs
    assert len(pairs) > 25
    assert {pair.ratio for pair in pairs} == {1.0}


def test_figures_are_svg_with_labels(written):
    for path in written.glob("*.svg"):
        root = ET.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag == f"{SVG}svg"
        assert root.get("viewBox")
        texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
        assert len(texts) > 8, "axes and legends are labelled"
        assert "date" not in path.read_text().lower()


def texts_of(picture):
    """Words of a figure."""
    root = ET.fromstring(picture.svg)
    return ["".join(text.itertext()).strip() for text in root.iter(f"{SVG}text")]


def test_figures_are_of_the_scenario_s_own_compression_and_devices(tmp_path):
    """DeepSqueeze at 80 % on two kinds of devices, in place of CHOCO at 99 %."""
    own = (
        "gossip={algorithm: deepsqueeze, averaging_rate: 0.2, "
        "compressor: {kind: random_k, keep: 0.2}}"
    )
    found = study(small(tmp_path, *MIXED, own, "fleet.pace=free"), all_models=False)
    pictures = {picture.name: texts_of(picture) for picture in found.pictures()}
    assert "held, deepsqueeze, random 20 %, int8" in pictures["memory"]
    assert any(text.startswith("random 20 %") for text in pictures["message"])
    assert "Whole iteration, deepsqueeze, random 20 %" in pictures["energy"]
    assert not any("top 1 %" in text for texts in pictures.values() for text in texts)
    assert "A round at free pace: small" in pictures["fleet"]
    assert not any("wait" in text for text in pictures["fleet"])
    profiles = [device.profile for device in found.costs.devices]
    of_catalog = memory_of_models((found.comparison,), profiles)
    assert "raspberry-pi-zero-2w" in texts_of(of_catalog)
    assert "esp32-s3" not in texts_of(of_catalog)
    # The row is that of the scenario itself, which is in fp32.
    assert found.comparison.own.fp32.message == found.costs.message


def test_figures_are_the_same_bytes_each_time(found, written):
    again = memory_picture(found.comparison), fleet_picture(found.costs)
    for picture in again:
        assert (written / f"{picture.name}.svg").read_text(encoding="utf-8") == picture.svg


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.ids, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href"):
                self.links.append(value)


def test_the_page_needs_no_other_file_and_has_all_figures_and_tables(found, written):
    page = _Page()
    page.feed((written / "index.html").read_text(encoding="utf-8"))
    assert page.tags.count("svg") == 6
    assert page.tags.count("table") == len(found.answer_tables()) + len(found.tables())
    assert "script" not in page.tags
    assert all(link.startswith("#") for link in page.links)
    assert len(set(page.ids)) == len(page.ids), "figures share no ids"
    assert {link[1:] for link in page.links} <= set(page.ids)


def test_places_that_can_not_be_written_are_refused_with_a_remedy(found, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match=r"nowhere.costs\.json: can't be written .*another place"):
        write_json(found.record(), tmp_path / "nowhere" / "costs.json")
    with pytest.raises(StudyError, match="file: can't be written"):
        write_folder(found, tmp_path / "file")

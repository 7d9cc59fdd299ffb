import contextlib
import re

import networkx as nx
import pytest
from graph_strategies import digraphs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topologies import TopologyError, load_graph

UNDIRECTED = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="latency_ms" attr.type="double" for="edge" id="d0"/>
  <key attr.name="city" attr.type="string" for="node" id="d1"/>
  <graph edgedefault="undirected">
    <node id="b"><data key="d1">Bern</data></node>
    <node id="a"/>
    <node id="c"/>
    <edge source="b" target="a"><data key="d0">2.5</data></edge>
    <edge source="a" target="c"/>
  </graph>
</graphml>
"""
TWO_WIRES = UNDIRECTED.replace('target="c"/>', 'target="c"/><edge source="c" target="a"/>')


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def links(graph):
    return {(j, i): count for j, i, count in graph.edges(data="multiplicity")}


class TestGraphML:
    def test_undirected_links_go_both_ways(self, tmp_path):
        graph = load_graph(write(tmp_path, "net.graphml", UNDIRECTED))
        assert links(graph) == {(0, 1): 1, (1, 0): 1, (0, 2): 1, (2, 0): 1}

    def test_directed_links_go_one_way(self, tmp_path):
        directed = UNDIRECTED.replace("undirected", "directed")
        graph = load_graph(write(tmp_path, "net.graphml", directed))
        assert links(graph) == {(1, 0): 1, (0, 2): 1}

    def test_nodes_are_numbered_by_sorted_name_and_keep_name_and_attributes(self, tmp_path):
        graph = load_graph(write(tmp_path, "net.graphml", UNDIRECTED))
        assert list(graph.nodes(data=True)) == [
            (0, {"name": "a"}),
            (1, {"name": "b", "city": "Bern"}),
            (2, {"name": "c"}),
        ]

    def test_link_attributes_hold_in_both_directions(self, tmp_path):
        graph = load_graph(write(tmp_path, "net.graphml", UNDIRECTED))
        assert graph.edges[0, 1]["latency_ms"] == graph.edges[1, 0]["latency_ms"] == 2.5
        assert "latency_ms" not in graph.edges[0, 2]

    def test_numbers_of_links_for_people_are_kept(self, tmp_path):
        labelled = UNDIRECTED.replace('<edge source="b"', '<edge id="e0" source="b"')
        graph = load_graph(write(tmp_path, "net.graphml", labelled))
        assert graph.edges[0, 1]["id"] == "e0"

    def test_parallel_links_count_as_multiplicity(self, tmp_path):
        graph = load_graph(write(tmp_path, "net.graphml", TWO_WIRES))
        assert links(graph) == {(0, 1): 1, (1, 0): 1, (0, 2): 2, (2, 0): 2}

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
    @given(graph=digraphs(max_devices=12).filter(lambda graph: graph.number_of_edges()))
    def test_what_networkx_wrote_is_read_back(self, tmp_path, graph):
        path = tmp_path / "written.graphml"
        nx.write_graphml_xml(graph, path)
        assert links(load_graph(path)) == links(graph)

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            ("", "line 1: is no XML: no element found"),
            (UNDIRECTED.replace("</edge>", ""), "line 11: is no XML: mismatched tag"),
            ("<html/>", "is no valid GraphML"),
            (UNDIRECTED.replace("utf-8", "utf-x"), "is no valid GraphML: unknown encoding"),
            (UNDIRECTED.replace(">2.5<", ">fast<"), "is no valid GraphML: .*fast"),
            (UNDIRECTED.replace('"double"', '"quux"'), "is no valid GraphML: .*quux"),
            (
                UNDIRECTED.replace("latency_ms", "latency"),
                "links have no attribute 'latency'; did you mean latency_ms",
            ),
            (UNDIRECTED.replace("latency_ms", "colour"), "no attribute 'colour'; remove it; links"),
            (
                UNDIRECTED.replace('"double"', '"string"'),
                "latency_ms of .* is '2.5'; must be a num",
            ),
            (
                UNDIRECTED.replace('"double"', '"boolean"').replace("2.5", "true"),
                "latency_ms of .* is True; must be a number",
            ),
            (UNDIRECTED.replace("2.5", "inf"), "latency_ms of .* is inf; must be a number"),
            (
                UNDIRECTED.replace("</graph>", '<edge source="b" target="a"/></graph>'),
                "parallel links .* differ in latency_ms; make one link of them",
            ),
            (UNDIRECTED.replace('target="c"', 'target="a"'), "a sends to itself"),
            (re.sub("<edge.*", "", UNDIRECTED), "has no links"),
        ],
    )
    def test_a_broken_file_is_refused(self, tmp_path, content, complaint):
        path = write(tmp_path, "net.graphml", content)
        with pytest.raises(TopologyError, match=f"^{re.escape(str(path))}.*{complaint}"):
            load_graph(path)

    @pytest.mark.filterwarnings("ignore:No key type")  # networkx then reads text
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
    @given(data=st.data())
    def test_a_mutated_file_is_read_or_refused_and_nothing_else(self, tmp_path, data):
        content = bytearray(TWO_WIRES.encode())
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(content) - 1))
            content[place] = data.draw(st.integers(0, 255))
        path = tmp_path / "mutated.graphml"
        path.write_bytes(content)
        with contextlib.suppress(TopologyError):
            assert load_graph(path).number_of_edges() > 0


class TestEdgeLists:
    @pytest.mark.parametrize("name", ["net.edgelist", "net.txt"])
    def test_lines_are_directed_links_and_comments_are_skipped(self, tmp_path, name):
        path = write(tmp_path, name, "# who to whom\nx y\n\n  y\tz  # the last\nz x\n")
        assert links(load_graph(path)) == {(0, 1): 1, (1, 2): 1, (2, 0): 1}

    def test_integer_names_are_sorted_by_value(self, tmp_path):
        graph = load_graph(write(tmp_path, "net.txt", "010 2\n2 9\n9 010\n"))
        assert [name for _, name in graph.nodes(data="name")] == ["2", "9", "010"]
        assert set(graph.edges) == {(2, 0), (0, 1), (1, 2)}

    def test_other_names_are_sorted_as_text(self, tmp_path):
        graph = load_graph(write(tmp_path, "net.txt", "n10 n2\nn2 n10\n"))
        assert [name for _, name in graph.nodes(data="name")] == ["n10", "n2"]

    def test_csv_needs_no_header(self, tmp_path):
        path = write(tmp_path, "net.csv", "a,b\nb, a\n")
        assert links(load_graph(path)) == {(0, 1): 1, (1, 0): 1}

    def test_csv_header_names_link_attributes(self, tmp_path):
        path = write(
            tmp_path,
            "net.csv",
            'Source,Target,latency_ms,label\na,b,20,"air, 2.4 GHz"\nb,a,2.5,\n',
        )
        graph = load_graph(path)
        assert graph.edges[0, 1] == {"latency_ms": 20, "label": "air, 2.4 GHz", "multiplicity": 1}
        assert graph.edges[1, 0] == {"latency_ms": 2.5, "multiplicity": 1}

    def test_csv_cells_that_are_empty_say_nothing(self, tmp_path):
        path = write(tmp_path, "net.csv", "source,target,latency_ms,multiplicity\na,b,,\nb,a,1,2\n")
        graph = load_graph(path)
        assert graph.edges[0, 1] == {"multiplicity": 1}
        assert graph.edges[1, 0] == {"latency_ms": 1, "multiplicity": 2}

    def test_csv_may_start_with_the_mark_that_spreadsheets_write(self, tmp_path):
        path = write(tmp_path, "net.csv", "\ufeffsource,target\na,b\nb,a\n")
        assert len(load_graph(path)) == 2

    def test_csv_column_multiplicity_counts(self, tmp_path):
        path = write(tmp_path, "net.csv", "source,target,multiplicity\na,b,2\nb,a,1\n")
        assert links(load_graph(path)) == {(0, 1): 2, (1, 0): 1}

    @pytest.mark.parametrize(
        ("name", "content", "complaint"),
        [
            ("net.csv", "a,b\nb\n", r"line 2: \['b'\] is not of the form source, target"),
            ("net.csv", "a;b\nb;a\n", "line 1: .* source, target; separate cells by commas"),
            ("net.csv", "From,To\na,b\n", "line 1: is From,To; a line of names begins with sou"),
            ("net.csv", "a,b\nb,a,3\n", "line 2: .* is not of the form source, target"),
            (
                "net.csv",
                "source,target,loss\na,b\n",
                "line 2: .* not of the form source, target, loss",
            ),
            ("net.csv", "source,target,ms\n", "line 1: links have no attribute 'ms'; remove it;"),
            ("net.csv", "source,target,latency\n", "line 1: .* 'latency'; did you mean latency_ms"),
            ("net.csv", "source,target,Loss\n", "line 1: .* 'Loss'; did you mean loss?"),
            ("net.csv", "source,target,weight\n", "line 1: the weight of links is decided by"),
            ("net.csv", "source,target,loss,loss\n", "line 1: names a column twice"),
            (
                "net.csv",
                "source,target,loss\na,b,low\n",
                "line 2: loss of a -> b is 'low'; must be",
            ),
            (
                "net.csv",
                "source,target,loss\na,b,nan\n",
                "line 2: loss of a -> b is nan; must be a",
            ),
            ("net.csv", "a,b\n,a\n", "line 2: .* is not of the form"),
            ("net.csv", 'a,b\n"b,a\n', "is no comma-separated text"),
            ("net.csv", "a,b\nb,b\n", "line 2: b sends to itself; remove that link"),
            ("net.csv", "a,b\nb,a\na,b\n", "line 3: the link a -> b occurs twice; remove one"),
            (
                "net.csv",
                "source,target,multiplicity\na,b,0\n",
                "line 2: multiplicity of a -> b is 0",
            ),
            ("net.csv", "source,target\n", "has no links"),
            ("net.csv", "", "has no links"),
            ("net.txt", "a b\n\na b c\n", "line 3: .* is not of the form source, target"),
            ("net.txt", "a b\nlonely\n", "line 2: .* is not of the form"),
            ("net.txt", "# nothing\n", "has no links"),
            ("net.json", "{}", "unknown ending; use one of .graphml, .csv, .edgelist, .txt"),
        ],
    )
    def test_a_bad_file_is_refused_with_its_line(self, tmp_path, name, content, complaint):
        path = write(tmp_path, name, content)
        with pytest.raises(TopologyError, match=f"^{re.escape(str(path))}.*{complaint}"):
            load_graph(path)


@pytest.mark.parametrize("name", ["net.graphml", "net.csv", "net.txt"])
class TestUnreadableFiles:
    def test_a_missing_file_is_refused(self, tmp_path, name):
        with pytest.raises(TopologyError, match="cannot be read: No such file"):
            load_graph(tmp_path / name)

    def test_a_folder_is_refused(self, tmp_path, name):
        (tmp_path / name).mkdir()
        with pytest.raises(TopologyError, match="cannot be read: Is a directory"):
            load_graph(tmp_path / name)

    def test_bytes_that_are_no_text_are_refused(self, tmp_path, name):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00\x81 a\n")
        with pytest.raises(TopologyError, match=r"is no (text|XML|comma)"):
            load_graph(tmp_path / name)


def test_a_node_whose_name_is_not_its_id_is_refused(tmp_path):
    """The id is the device's name; the other name would be lost."""
    path = tmp_path / "net.graphml"
    graph = nx.Graph([("x", "y")])
    nx.set_node_attributes(graph, {"x": "gateway", "y": "attic"}, "name")
    nx.write_graphml(graph, path)
    with pytest.raises(
        TopologyError, match="node x has the name 'gateway'; a node's id is the dev"
    ):
        load_graph(path)
    nx.set_node_attributes(graph, {"x": "x", "y": "y"}, "name")
    nx.write_graphml(graph, path)
    assert len(load_graph(path)) == 2

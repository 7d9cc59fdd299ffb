"""AG News and SentLen: small files in the original formats, tokens, their cache, bad input."""

from __future__ import annotations

import logging
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgesim.data.errors import DataError
from edgesim.data.text import hub, tokens
from edgesim.data.text.ag_news import AgNews, read_ag_news
from edgesim.data.text.sent_len import BINS, SentLen, class_of, num_words, sentences_of
from edgesim.data.text.words import FIRST, LAST, PAD, UNKNOWN, WordTokenizer

ARTICLES = {
    "train": [
        (3, "Wall St. Bears", 'Short-sellers, "ultra-cynics",\\are seeing green again.'),
        (2, "Real win", "Real Madrid won."),
        (1, "Talks", "Talks went on."),
        (4, "Café", "A new phone, 5 inches."),
    ],
    "test": [(1, "Vote", "They vote."), (4, "Bears", "green bears again")],
}
TEXTS = {
    "train": [
        'Wall St. Bears Short-sellers, "ultra-cynics", are seeing green again.',
        "Real win Real Madrid won.",
        "Talks Talks went on.",
        "Café A new phone, 5 inches.",
    ],
    "test": ["Vote They vote.", "Bears green bears again"],
}
LABELS = {"train": [2, 1, 0, 3], "test": [0, 3]}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """No test reads what another one, or the user, has cached."""
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "home")


def write_csv(folder, encoding="utf-8"):
    """As ag_news_csv has them: every cell in quotes, quotes doubled."""
    for split, articles in ARTICLES.items():
        lines = [
            ",".join('"' + str(cell).replace('"', '""') + '"' for cell in article)
            for article in articles
        ]
        (folder / f"{split}.csv").write_text("\n".join(lines) + "\n", encoding=encoding)


def write_parquet(folder, **columns):
    for split in ("train", "test"):
        texts = [f"{title} {text}" for _, title, text in ARTICLES[split]]
        table = pa.table({"text": texts, "label": LABELS[split], **columns.get(split, {})})
        pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")


def write_sentence_length(path, splits=("tr", "va", "te")):
    lines = [
        f"{split}\t{label}\tsentence {label} of {split} ." for split in splits for label in "50"
    ]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_ag_news_is_read_alike_from_csv_and_parquet(tmp_path, write):
    write(tmp_path)
    splits = read_ag_news(tmp_path)
    assert {split: list(found.texts) for split, found in splits.items()} == TEXTS
    assert {split: found.labels.tolist() for split, found in splits.items()} == LABELS


def test_a_first_line_with_names_and_a_byte_order_mark_are_left_out(tmp_path):
    write_csv(tmp_path)
    plain = read_ag_news(tmp_path)["train"].texts
    path = tmp_path / "train.csv"
    path.write_text("Class Index,Title,Description\n" + path.read_text(), encoding="utf-8-sig")
    assert list(read_ag_news(tmp_path)["train"].texts) == list(plain)


def test_other_columns_of_parquet_files_may_name_owners(tmp_path):
    owners = {"train": {"paper": ["a", "b", "a", "c"]}, "test": {"paper": ["c", "a"]}}
    write_parquet(tmp_path, **owners)
    source = AgNews(str(tmp_path), max_length=8)
    assert source.columns["paper"].tolist() == owners["train"]["paper"]
    assert source.test_columns["paper"].tolist() == owners["test"]["paper"]
    for split in owners:  # as pandas 3 writes texts
        (path,) = tmp_path.glob(f"**/{split}*.parquet")
        table = pq.read_table(path)
        at = table.schema.get_field_index("paper")
        large = pa.field("paper", pa.large_string())
        pq.write_table(table.set_column(at, large, table["paper"].cast(large.type)), path)
    again = AgNews(str(tmp_path), max_length=8)
    assert again.columns["paper"].tolist() == owners["train"]["paper"]


def test_rows_are_tokens_and_their_mask(tmp_path):
    write_csv(tmp_path)
    source = AgNews(str(tmp_path), max_length=6, vocabulary=1000)
    inputs, labels = source.train
    assert inputs.shape == (4, 2, 6)
    assert inputs.dtype == labels.dtype == np.int64
    words = WordTokenizer(TEXTS["train"], 1000)
    for row, text in zip(inputs, TEXTS["train"], strict=True):
        found = words.tokens(text, 6)
        assert row[0].tolist() == found + [PAD] * (6 - len(found))
        assert row[1].tolist() == [1] * len(found) + [0] * (6 - len(found))
    assert source.num_classes == 4
    assert inputs.max() < len(words)


def test_words_are_the_most_frequent_then_by_the_alphabet():
    words = WordTokenizer(["b b a c, C", "a d"], 4 + 3)
    assert words.tokens("A b c, d", 10) == [FIRST, 4, 5, 6, UNKNOWN, UNKNOWN, LAST]
    assert words.tokens("a b c", 3) == [FIRST, 4, LAST]  # cut, with its last mark
    assert len(words) == 7


def test_texts_are_tokenized_once(tmp_path, monkeypatch):
    write_csv(tmp_path)
    made = []
    of_words = tokens._of_words
    monkeypatch.setattr(tokens, "_of_words", lambda *a: made.append(1) or of_words(*a))
    first, again = (AgNews(str(tmp_path), max_length=8) for _ in range(2))
    assert len(made) == 1
    for one, other in zip((*first.train, *first.test), (*again.train, *again.test), strict=True):
        np.testing.assert_array_equal(one, other)
    AgNews(str(tmp_path), max_length=9)
    AgNews(str(tmp_path), max_length=8, vocabulary=20)
    with (tmp_path / "train.csv").open("a") as file:
        file.write('"1","One","more"\n')
    assert len(AgNews(str(tmp_path), max_length=8).train[1]) == 5
    assert len(made) == 4


def test_a_broken_cache_is_made_again_and_one_that_cannot_be_written_is_no_error(tmp_path, caplog):
    write_csv(tmp_path)
    cache = tmp_path / "cache"
    source = AgNews(str(tmp_path), max_length=8, cache=str(cache))
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    with caplog.at_level(logging.WARNING):
        again = AgNews(str(tmp_path), max_length=8, cache=str(cache))
    np.testing.assert_array_equal(again.train[0], source.train[0])
    assert "it is made again" in caplog.text
    caplog.clear()
    (tmp_path / "file").write_text("")
    AgNews(str(tmp_path), max_length=8, cache=str(tmp_path / "file" / "below"))
    assert "later runs make it again" in caplog.text


def test_sent_len_is_read_from_sentevals_file(tmp_path):
    path = tmp_path / "sentence_length.txt"
    write_sentence_length(path)
    by_folder, by_file = (SentLen(str(p), max_length=8) for p in (tmp_path, path))
    assert by_folder.train[1].tolist() == by_file.train[1].tolist() == [5, 0]
    assert by_folder.num_classes == 6
    va, te = (SentLen(str(path), max_length=8, evaluate_on=split) for split in ("va", "te"))
    assert np.array_equal(va.test[0], by_folder.test[0])
    assert va.test[1].tolist() == te.test[1].tolist()


def test_lengths_fall_into_the_bins_of_senteval():
    """docs/reference.md, section 5: 5-8, 9-12, 13-16, 17-20, 21-25, 26-28."""
    expected = {words: label for label, (a, b) in enumerate(BINS) for words in range(a, b + 1)}
    assert {w: class_of(w) for w in range(40) if class_of(w) is not None} == expected
    assert set(range(5, 29)) == set(expected)


def test_sentences_end_before_a_capital_and_words_have_letters_or_digits():
    text = 'One two. "Three four?" 5 is "it". Mr. Lee e.g. said: no ... and'
    assert sentences_of(text) == [
        "One two.",
        '"Three four?"',
        '5 is "it".',
        "Mr.",
        "Lee e.g. said: no ... and",
    ]
    assert num_words("Lee e.g. said: - no ... #39; and") == 6


@pytest.mark.parametrize("form", ["txt", "csv", "parquet"])
def test_sent_len_is_built_from_any_texts(tmp_path, form):
    """As many sentences of each class, each once, in the order of the texts."""
    sentences = [
        " ".join(["Word", *[f"w{copy}"] * (words - 1)]) + "."
        for copy in range(3)
        for words in (3, 5, 8, 9, 14, 18, 25, 26, 29)
    ]
    lines = [" ".join(sentences[i : i + 3]) for i in range(0, len(sentences), 3)]
    for split in ("train", "test"):
        own = [line.replace("Word", split.title()) for line in [*lines, *lines]]
        if form == "txt":
            (tmp_path / f"{split}.txt").write_text("\n".join(own))
        elif form == "csv":
            rows = [f'"1","{split.title()}","{line}"' for line in own]
            (tmp_path / f"{split}.csv").write_text("\n".join(rows))
        else:
            pq.write_table(pa.table({"text": own}), tmp_path / f"{split}.parquet")
    source = SentLen(str(tmp_path), max_length=40)
    for _, labels in (source.train, source.test):
        assert Counter(labels.tolist()) == dict.fromkeys(range(6), 3)
    every = SentLen(str(tmp_path), max_length=40, balanced=False)
    assert Counter(every.train[1].tolist()) == {0: 6, 1: 3, 2: 3, 3: 3, 4: 3, 5: 3}


def test_what_is_not_there_is_told_with_where_it_comes_from(tmp_path):
    for source, words in ((AgNews, "CharCnn_Keras"), (SentLen, "SentEval")):
        for path in ("", str(tmp_path), str(tmp_path / "no")):
            with pytest.raises(DataError, match=rf"data.path.*give .*{words}"):
                source(path)


def broken(folder, split="train", **changes):
    """The message for a file of AG News with other content."""
    write_csv(folder)
    (folder / f"{split}.csv").write_bytes(changes["content"])
    with pytest.raises(DataError) as caught:
        AgNews(str(folder), max_length=8)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_csv_with_other_columns_classes_or_encoding_is_refused_in_one_line(tmp_path):
    said = broken(tmp_path, content=b'"1","a","b"\n"2","title"\n')
    assert said.endswith(
        "train.csv, line 2 has 2 columns; must be 3: class 1 to 4, title, description"
    )
    said = broken(tmp_path, content=b'"1","a","b"\n"0","title","text"\n')
    assert "line 2: the class is '0'; must be 1 to 4" in said
    said = broken(tmp_path, content='"1","a","caf\u00e9"\n'.encode("latin-1"))
    assert "train.csv is not UTF-8 text (byte 0xe9); save it as UTF-8" in said
    assert "holds no article" in broken(tmp_path, split="test", content=b"\n\n")
    (tmp_path / "test.csv").unlink()
    with pytest.raises(DataError, match=r"test.csv can't be read: No such file"):
        read_ag_news(tmp_path)


def test_parquet_files_with_other_columns_are_refused(tmp_path):
    def said(**columns):
        for split in ("train", "test"):
            pq.write_table(pa.table(columns), tmp_path / f"{split}.parquet")
        with pytest.raises(DataError) as caught:
            read_ag_news(tmp_path)
        return str(caught.value)

    assert "has the columns title, label; a column of text must be named text" in said(
        title=["a"], label=[1]
    )
    assert "column label holds string; must be of class numbers" in said(text=["a"], label=["1"])
    assert "label, row 1 is 4; must be a class, 0 to 3" in said(text=["a", "b"], label=[0, 4])
    assert "text, row 0: no value" in said(text=[None, "b"], label=[0, 1])


def test_a_line_that_senteval_does_not_write_is_refused(tmp_path):
    path = tmp_path / "sentence_length.txt"
    path.write_text("tr\t0\ta b c\ntr\t6\ta b\n")
    with pytest.raises(DataError, match=r"line 2: is .*must be tr, va or te, a class 0 to 5"):
        SentLen(str(path))
    write_sentence_length(path, splits=("tr", "te"))
    with pytest.raises(DataError, match="has no line of va"):
        SentLen(str(path))


def test_texts_without_a_length_are_told(tmp_path):
    for split in ("train", "test"):
        (tmp_path / f"{split}.txt").write_text("Only five words are here.\n")
    with pytest.raises(DataError, match="the train texts have no sentence of 9 to 12 words"):
        SentLen(str(tmp_path))


def test_without_transformers_the_command_that_installs_it_is_named(tmp_path, monkeypatch):
    write_csv(tmp_path)
    monkeypatch.setattr(hub, "find_spec", lambda _: None)
    hub.transformers.cache_clear()
    with pytest.raises(DataError, match=r"install it: \S*python\S* -m pip install transformers$"):
        AgNews(str(tmp_path), tokenizer="distilbert-base-uncased")
    hub.transformers.cache_clear()
    AgNews(str(tmp_path), max_length=8)  # words need none


def test_a_tokenizer_that_is_not_on_disk_is_refused_with_what_to_do(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="pip install 'edgesim[text]'")
    import huggingface_hub

    def unreachable(*_, local_files_only=False, **__):
        raise huggingface_hub.errors.LocalEntryNotFoundError("not here\nat all")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    write_csv(tmp_path)
    for options, remedy in (
        ({"tokenizer": "no-such-tokenizer"}, "set download: true beside it"),
        ({"tokenizer": "no-such-tokenizer", "download": True}, "check the name and the connection"),
        ({"tokenizer": "a b"}, "no name of the Hugging Face hub"),
        ({"tokenizer": str(tmp_path / "no")}, "is no folder"),
        ({"tokenizer": str(tmp_path)}, "holds no tokenizer"),
    ):
        with pytest.raises(DataError, match=remedy) as caught:
            AgNews(str(tmp_path), **options)
        assert "\n" not in str(caught.value)


def test_a_tokenizer_of_the_hub_pads_and_cuts_as_it_does_alone(tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install 'edgesim[text]'")
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "real", "win", "madrid", "talks", "##s", "on", "."]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    write_csv(tmp_path)
    source = AgNews(str(tmp_path), tokenizer=str(folder), max_length=7)
    alone = transformers.AutoTokenizer.from_pretrained(folder)
    for row, text in zip(source.train[0], TEXTS["train"], strict=True):
        expected = alone(text, truncation=True, max_length=7, padding="max_length")
        assert row[0].tolist() == expected["input_ids"]
        assert row[1].tolist() == expected["attention_mask"]

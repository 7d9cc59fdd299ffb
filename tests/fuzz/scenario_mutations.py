"""Scenarios that are a little or very wrong, made from sound ones by a seed."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Literal, get_args, get_origin

import yaml

from edgesim.scenario.outline import SCENARIO, Slot

NUMBERS = (
    *(0, 1, 2, 3, 7, 8, 64, 1000, 10_000, -1, -(10**18), 2**31, 2**63 - 1, 2**63, 10**12, 10**100),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -2.5, 1e-300, 5e-324, 1e-9, 1e9, 1e300, 1.7976931348623157e308),
    *(float("inf"), float("-inf"), float("nan")),
)
TEXTS = (
    *("", " ", "null", "~", "yes", "1e-3", "0x10", "1_000", "9" * 5000, "a" * 20_000, "-", "?"),
    *(
        "\u00fcn\u00ef\u010d\u00f6d\u00e9",
        "\u202e\u2066x",
        "\U0001f525",
        "\x00",
        "\x1b[2J",
        "\ud800",
    ),
    *("..", "/", "/dev/null", "/dev/zero", "~nobody/x", "%s %d {0}", "[bold]x[/bold]", ":fire:"),
    *("*a", "&a b", "!!python/object:os.system", "<<", "# no comment", "line\nline", "a\tb"),
)
NEVER = frozenset({"download"})  # fetches files
DEPTHS = (3, 60)


def mutated(base, rng):
    """A damaged scenario, as text, and overrides.

    Args:
        base: a sound one, as plain values.
        rng: decides on all.
    """
    document = json.loads(json.dumps(base))
    if rng.random() < 0.4:  # all values fit their keys: what is wrong is found late, if at all
        for _ in range(rng.choice((1, 1, 2))):
            document = fit_in(document, rng)
        return written(document), []
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 5))):
        document = rng.choice(CHANGES)(document, rng)
    text = written(document)
    if rng.random() < 0.25:
        for _ in range(rng.choice((1, 1, 2, 5))):
            text = rng.choice(DAMAGES)(text, rng)
    overrides = [override(document, rng) for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 4)))]
    return text, overrides


def written(document):
    """YAML of it; what YAML has no words for is left as Python writes it."""
    try:
        return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, RecursionError, UnicodeError):
        return repr(document)


def places(value):
    """All (container, key) pairs of a document, and the containers themselves."""
    found, ahead = [], [value]
    while ahead:
        container = ahead.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list) and len(found) < 500:
                ahead.append(container[key])
    return found


def any_value(rng):
    """Something that is hardly ever right."""
    kind = rng.randrange(12)
    if kind < 5:
        return rng.choice(NUMBERS)
    if kind < 8:
        return rng.choice(TEXTS)
    if kind == 8:
        return rng.choice((True, False, None, [], {}))
    if kind == 9:
        return [rng.choice(NUMBERS)] * rng.choice((1, 3, 300))
    if kind == 10:
        return {rng.choice(TEXTS) or "x": rng.choice(NUMBERS), "kind": rng.choice(TEXTS)}
    value = rng.choice(NUMBERS)
    for _ in range(rng.choice(DEPTHS)):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


@cache
def schema_keys():
    """Path and slot of every key of the schema."""
    found, ahead = [], [((), SCENARIO)]
    while ahead:
        path, slot = ahead.pop()
        if slot.element is not None and len(path) < 8:
            ahead.append(((*path, 0), slot.element))
        for section in slot.sections:
            for key in section.model_fields:
                inner = Slot.of_key(section, key)
                if key not in NEVER and len(path) < 8:
                    found.append(((*path, key), inner))
                    ahead.append(((*path, key), inner))
    return found


def bound(slot, name, default):
    """A range's end."""
    return next((getattr(c, name) for c in slot.constraints if hasattr(c, name)), default)


def fitting_value(slot, rng, depth=0):
    """A value of the right type, at the ends of its range more often than not."""
    if slot.sections and depth < 6 and (slot.number is None or rng.random() < 0.5):
        section = rng.choice(slot.sections)
        value = {}
        for key, field in section.model_fields.items():
            inner = Slot.of_key(section, key)
            if key == slot.discriminator or get_origin(inner.annotation) is Literal:
                value[key] = rng.choice(get_args(inner.annotation) or inner.names or (None,))
            elif key not in NEVER and (field.is_required() or rng.random() < 0.2):
                value[key] = fitting_value(inner, rng, depth + 1)
        return [value] * rng.choice((1, 2)) if slot.element and slot.number else value
    if slot.names:
        return rng.choice(slot.names)
    if slot.number is int:
        low, high = bound(slot, "ge", 0), bound(slot, "le", None)
        ends = [low, low + 1, low + 7, 100, 1000, 10_000, 100_000, 10**6, 10**8, 10**10, 10**15]
        return rng.choice(ends if high is None else [low, high, (low + high) // 2])
    if slot.number is float:
        low, high = bound(slot, "ge", bound(slot, "gt", 0.0)), bound(slot, "le", 1e9)
        return float(rng.choice((low, high, (low + high) / 2, low + 1e-9, high * 0.999, 1e-3, 1.0)))
    if slot.element is not None:
        return [fitting_value(slot.element, rng, depth + 1) for _ in range(rng.randrange(4))]
    if slot.annotation is bool:
        return rng.random() < 0.5
    return rng.choice(("x", "raspberry-pi-4b", "gap9", "a/b.csv", *TEXTS))


def put(document, path, value):
    """Put a value at a path, making what is missing on the way."""
    container = document
    for part, following in pairwise(path):
        inner = [{}] if following == 0 else {}
        if isinstance(container, list):
            part = 0
            if not container or not isinstance(container[0], dict | list):
                container[:1] = [inner]
        elif not isinstance(container.get(part), dict | list):
            container[part] = inner
        container = container[part]
    if isinstance(container, list):
        container[:1] = [value]
    else:
        container[path[-1]] = value


def fit_in(document, rng):
    if not isinstance(document, dict):
        return document
    path, slot = rng.choice(schema_keys())
    put(document, path, fitting_value(slot, rng))
    return document


def replace_value(document, rng):
    if found := isinstance(document, dict | list) and places(document):
        container, key = rng.choice(found)
        container[key] = any_value(rng)
        return document
    return any_value(rng)


def remove_key(document, rng):
    if found := isinstance(document, dict | list) and places(document):
        container, key = rng.choice(found)
        del container[key]
    return document


def rename_key(document, rng):
    found = isinstance(document, dict) and [p for p in places(document) if isinstance(p[0], dict)]
    if found:
        container, key = rng.choice(found)
        new = rng.choice((str(key)[:-1], f"{key}s", str(key).upper(), rng.choice(TEXTS), 3, None))
        container[new] = container.pop(key)
    return document


def swap_values(document, rng):
    found = isinstance(document, dict) and places(document)
    if found and len(found) > 1:
        (one, key), (other, its_key) = rng.sample(found, 2)
        copy = json.loads(json.dumps([one[key], other[its_key]], default=str))
        one[key], other[its_key] = copy[1], copy[0]
    return document


CHANGES = (fit_in, fit_in, fit_in, fit_in, replace_value, replace_value, remove_key, rename_key,
           swap_values)  # fmt: skip


def cut(text, rng):
    return text[: rng.randrange(len(text) + 1)]


def drop_part(text, rng):
    start = rng.randrange(len(text) + 1)
    return text[:start] + text[start + rng.choice((1, 1, 3, 40)) :]


def add_part(text, rng):
    start = rng.randrange(len(text) + 1)
    part = rng.choice(("\t", ":", "- ", "[", "]", "{", "}", "&a ", "*a", "!!str ", "|", ">", "'",
                       '"', "%", "@", "\n", "\n---\n", "\n...\n", "\x00", "\ufeff", "\u2028", "#",
                       "<<: *a\n", "? "))  # fmt: skip
    return text[:start] + part + text[start:]


def double_line(text, rng):
    lines = text.splitlines(keepends=True) or [""]
    line = rng.choice(lines)
    lines.insert(rng.randrange(len(lines) + 1), line)
    return "".join(lines)


def indent_line(text, rng):
    lines = text.splitlines(keepends=True) or [""]
    place = rng.randrange(len(lines))
    lines[place] = rng.choice((" ", "  ", "\t")) + lines[place]
    return "".join(lines)


def add_aliases(text, rng):
    """Lists of lists that would be billions of values if they were written out."""
    lines = ["a0: &a0 [1, 2, 3]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    target = rng.choice(("name", "description", "fleet", "seed", "x"))
    return "\n".join([*lines, f"{target}: *a11"]) + "\n" + text


def nest_deeply(text, rng):
    depth = rng.choice((100, 900, 20_000))
    return f"{text}\n{rng.choice(('x', 'seed', 'fleet'))}: " + rng.choice(("[", "{a: ")) * depth


def add_many_lines(text, rng):
    line = rng.choice(("x{}: 1\n", "- {}\n", "# {}\n", "{{a: {}}}\n"))
    return text + "".join(line.format(n) for n in range(rng.choice((1000, 30_000))))


DAMAGES = (cut, drop_part, drop_part, add_part, add_part, double_line, indent_line, add_aliases,
           nest_deeply, add_many_lines)  # fmt: skip


def override(document, rng):
    """A `--set`, right, wrong or malformed."""
    if rng.random() < 0.02:
        return nest_deeply("", rng).strip().replace(": ", "=", 1)
    if rng.random() < 0.1:
        return rng.choice(("", "=", "a", "a=", ".=1", "a..b=1", "seed", "=1", "seed==2", "[0]=1"))
    if rng.random() < 0.6 or not isinstance(document, dict):
        path, slot = rng.choice(schema_keys())
        value = fitting_value(slot, rng) if rng.random() < 0.7 else any_value(rng)
    else:
        path, container = [], document
        while isinstance(container, dict | list) and container and rng.random() < 0.9:
            keys = list(container) if isinstance(container, dict) else range(len(container) + 1)
            path.append(rng.choice(keys))
            try:
                container = container[path[-1]]
            except IndexError:
                break
        value = any_value(rng)
    name = ".".join(map(str, path))
    if rng.random() < 0.5:
        return f"{name}={json.dumps(value, default=str)[:50_000]}"
    return f"{name}={written(value)[:50_000]}"

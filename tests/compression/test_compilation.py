from edgesim.compression import compilation, loading


def test_compiled_code_is_due_after_some_calls_or_when_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(compilation, "CALLS_IN_NUMPY", 2)
    monkeypatch.setattr(compilation._usage, "calls_in_numpy", 0)
    assert [compilation.is_compiled_code_due() for _ in range(4)] == [False, False, True, True]
    monkeypatch.setattr(compilation._usage, "calls_in_numpy", 0)
    loading.load_compiled_code()
    assert compilation.is_compiled_code_due()


def test_uncounted_calls_load_nothing(monkeypatch):
    monkeypatch.setattr(compilation, "CALLS_IN_NUMPY", 2)
    monkeypatch.setattr(compilation._usage, "calls_in_numpy", 0)
    with compilation.uncounted_calls():
        assert not any(compilation.is_compiled_code_due() for _ in range(4))
    assert [compilation.is_compiled_code_due() for _ in range(3)] == [False, False, True]
    with compilation.uncounted_calls():
        assert compilation.is_compiled_code_due(), "it is loaded already"

"""How problems are told."""

from llamasup.config.problem import Finding, Level, Problem, dotted, has_error, render


def test_one_line_each():
    problems = [
        Problem("/etc/a.toml", "instances.chat.listen", "is missing: write it"),
        Problem("/etc/a.toml", "", "is not TOML"),
        Problem("/etc/b.toml", "defaults", "is odd", Level.WARNING),
    ]

    assert render(problems) == (
        "/etc/a.toml: instances.chat.listen: is missing: write it\n"
        "/etc/a.toml: is not TOML\n"
        "/etc/b.toml: defaults: warning: is odd"
    )


def test_a_warning_is_no_error():
    warning = Finding(("a",), "x", Level.WARNING)

    assert not has_error([warning])
    assert has_error([warning, Finding(("a",), "x")])


def test_a_key_is_written_as_toml_writes_it():
    assert dotted(("instances", "a b", "ctx-size", "é", "")) == 'instances."a b".ctx-size."é".""'

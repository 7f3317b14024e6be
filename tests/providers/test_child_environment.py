from cachegate.providers.child_environment import kept


def test_a_program_gets_where_things_are_and_no_key() -> None:
    where = {"PATH": "/bin", "https_proxy": "http://127.0.0.1:1", "SSL_CERT_FILE": "/ca", "LANG": "C"}
    keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "GH_TOKEN": "k", "REDIS_URL": "redis://k@127.0.0.1"}
    own = {"HOME": "/home/me", "TMPDIR": "/home/me/tmp", "CLAUDE_CONFIG_DIR": "/home/me/.claude"}
    assert kept({**where, **keys, **own}) == where

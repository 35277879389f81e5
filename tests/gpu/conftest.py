"""Markers of the GPU tests, which must be known even where pytest runs without this project's configuration."""


def pytest_configure(config):
    config.addinivalue_line("markers", "sanitize: a tiny case of every kernel, for NVIDIA's compute-sanitizer")
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): longest time of a test; needs pytest-timeout")

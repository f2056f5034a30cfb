"""Which names of files are taken for random ones: in doubt none."""

import pytest

from licet.learn.generalise import is_random

FIXED = (
    *("npm-shrinkwrap.json", "npm-debug.log", "jest_config.js", "jest_results1", "cc_config1.c", "ccTests1.o"),
    *("ccTest1x.c", "rustcflags1", "rustc_codegen", "go-build20240101", "go-builder", "pip-compile-requests"),
    *("pip-tools-v2config.txt", "pytest-cache-files-list", "tmpdownload", "tmpresults1", "tmp_results"),
    *("tmp_test_results", "tmp-config", "tmp-results2", "tmp.backup12", "tmp.settings", ".tmpconfig1", ".tmpfiles"),
    *("xmlhttprequest.js", "httpsproxy.conf", "http2server.go", "utf8strings.c", "x509certs.txt", "sqlite3db.py"),
    *("md5checks.txt", "h264tomp4.sh", "face2face.png", "deadbeef", "report-20240101b.csv", "manylinux2014_x86_64"),
)
RANDOM = (
    *("pytest-cache-files-6fdmhwza", "tmpq7x_1b2z", "pip-unpack-a1b2c3d4", "pip-build-env-x_9k2mzq"),
    *("tmp.Ab3dE5gH1j", "tmp.Ab3dE5gH", "tmp-4242-a8Kd92LmQ0zx", ".tmpQ7x1bZ", "rustcA1b2C3", "tmp_obj_Q7x1bZ"),
    *("ccQ7x1bZ.o", "ccQ7x1bZ", "go-build3456789012", "go-link-345678901", "main.8f3kq2zt.js", "3f0c5b52"),
    *("3f0c5b52-8d1f-4d41-9d8e-07a2c0d6f8ab.log", "9f86d081884c7d65", "run-1763456789123.json"),
)


@pytest.mark.parametrize("name", FIXED)
def test_a_name_that_a_person_may_have_given_is_not_random(name: str) -> None:
    assert not is_random(name)


@pytest.mark.parametrize("name", RANDOM)
def test_a_name_in_the_shape_that_a_tool_makes_is_random(name: str) -> None:
    assert is_random(name)

"""What people write for a path or URL: what would be read as another place is refused with the right form."""

from __future__ import annotations

import pytest

from cerebro_elastic.system.addresses import place_of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3:/bucket/x", "s3://bucket/x"),
        ("zip::gcs:/bucket/x.zip", "gcs://bucket/x.zip"),
        ("dbfs:/FileStore/x", "dbfs:///FileStore/x"),
        ("file://data", "file:///data"),
        ("S3://bucket/x", "small letters: s3://bucket/x"),
        ("s3:///bucket/x", "names no bucket: s3://bucket/x"),
        ("C:\\data", "a path of Windows"),
        ("~nobody-here/x", "no such user"),
    ],
)
def test_an_address_that_would_be_another_place_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        place_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "/data",
        "runs/2026-01-01T10:00",
        "a b/c:d",
        "my_data:load",
        "s3://bucket",
        "hdfs:///data",
        "file:///data",
        "simplecache::s3://b/x",
    ],
)
def test_an_address_that_is_understood_stays_as_it_is(text: str) -> None:
    assert place_of(text) == text

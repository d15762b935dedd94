"""Files on any fsspec URL: read and written in chunks, hashed on the way, with retries."""

from cerebro_elastic.system.files.content import CHUNK, Chunk, Content, Sha256, digest, pour
from cerebro_elastic.system.files.faults import disk_full_raised, is_full, redacted, translated
from cerebro_elastic.system.files.listing import (
    expand,
    folders,
    is_hidden,
    literal_folder,
    sizes,
    sizes_through_links,
)
from cerebro_elastic.system.files.operations import (
    append,
    chunks,
    content,
    exists,
    is_folder,
    read,
    read_into,
    remove,
    replacing,
    settle,
    write,
    write_text,
)
from cerebro_elastic.system.files.parts import open_read, read_ranges, size
from cerebro_elastic.system.files.place import Place, in_a_hurry, locate
from cerebro_elastic.system.ownership import as_its_folder, check_own, make_folder, private_folder

__all__ = [
    "CHUNK",
    "Chunk",
    "Content",
    "Place",
    "Sha256",
    "append",
    "as_its_folder",
    "check_own",
    "chunks",
    "content",
    "digest",
    "disk_full_raised",
    "exists",
    "expand",
    "folders",
    "in_a_hurry",
    "is_folder",
    "is_full",
    "is_hidden",
    "literal_folder",
    "locate",
    "make_folder",
    "open_read",
    "pour",
    "private_folder",
    "read",
    "read_into",
    "read_ranges",
    "redacted",
    "remove",
    "replacing",
    "settle",
    "size",
    "sizes",
    "sizes_through_links",
    "translated",
    "write",
    "write_text",
]

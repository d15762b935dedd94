"""Fashion-MNIST as JPEGs in tar shards, in WebDataset's layout: ``python fashion_shards.py FOLDER``."""

import io
import sys
import tarfile
from pathlib import Path

from fashion_mnist_lightning import load
from PIL import Image


def write(folder, shards=8):
    """Of row 17: 000017.jpg, a picture of 40 x 40 pixels, and 000017.cls, its class."""
    Path(folder).mkdir(exist_ok=True)
    for split, columns in load().items():
        for shard in range(shards):
            with tarfile.open(f"{folder}/{split}-{shard:06d}.tar", "w") as tar:
                for row in range(shard, len(columns["label"]), shards):
                    jpeg, number = io.BytesIO(), columns["label"][row]
                    Image.fromarray(columns["image"][row, 0]).resize((40, 40)).save(jpeg, "jpeg")
                    for kind, content in ("jpg", jpeg.getvalue()), ("cls", str(number).encode()):
                        member = tarfile.TarInfo(f"{row:06d}.{kind}")
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    write(sys.argv[1])

"""Builds the bundled checkpoints anew, untrained: `python -m training.build [NAME ...] [--bundle FOLDER]`.

Without names, all of them. Only the rewriter is trained on the way, which takes 90 seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from diffusers.utils.logging import disable_progress_bar
from transformers.utils import logging as transformers_logging

from training.build.bundle import BUNDLE
from training.build.checkpoints import NAMES, build


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--bundle", type=Path, default=BUNDLE, help="where to, instead of over those there are")
    arguments = parser.parse_args()
    if unknown := set(arguments.names).difference(NAMES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    torch.set_num_threads(1)  # sums in the same order everywhere
    disable_progress_bar()
    transformers_logging.disable_progress_bar()
    for name in arguments.names or NAMES:
        for folder in build(name, arguments.bundle):
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            print(f"{folder}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()

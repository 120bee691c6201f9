"""What the stock pipelines of Flux1 draw, to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from deployments.contract.job import GenerationJob
from deployments.images import Pixels


def stock_run(pipeline: Any, job: GenerationJob, **inputs: Any) -> Pixels:
    """`inputs` are those of its call beside what the job says, or in place of that."""
    job_inputs = {
        "prompt": job.prompt,
        "width": job.width,
        "height": job.height,
        "num_inference_steps": job.steps,
        "guidance_scale": job.guidance,
        "generator": torch.Generator("cpu").manual_seed(job.seed),
        "max_sequence_length": min(512, pipeline.tokenizer_2.model_max_length),
    }
    return np.asarray(pipeline(**job_inputs | inputs).images[0])

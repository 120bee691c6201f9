"""Runs the stock pipelines of Flux1."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from deployments.contract.job import GenerationJob
from deployments.images import Pixels


def stock_run(pipeline: Any, job: GenerationJob, **inputs: Any) -> Pixels:
    """Runs the stock pipeline for a job; `inputs` are added to its call or replace parts of it."""
    job_inputs = {
        "prompt": job.request.prompt,
        "width": job.request.width,
        "height": job.request.height,
        "num_inference_steps": job.request.steps,
        "guidance_scale": job.request.guidance,
        "generator": torch.Generator("cpu").manual_seed(job.request.seed),
        "max_sequence_length": min(512, pipeline.tokenizer_2.model_max_length),
    }
    return np.asarray(pipeline(**job_inputs | inputs).images[0])

"""Inference servers with OpenAI's routes as backends of models: vLLM-Omni, SGLang-Diffusion, gen-serve itself."""

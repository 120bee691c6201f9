"""The bundled prompt rewriter: a language model, trained here on prompts that are made up by rules."""

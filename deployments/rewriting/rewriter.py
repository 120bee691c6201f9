"""The prompt rewriter: a causal language model, deterministic by seed, that also suggests a ratio.

A prompt may end with a region table, a JSON array of objects. The model never sees it, and it stays at the end
unchanged. If the model fails in any way, the result is the original prompt.
"""

from __future__ import annotations

import json
import logging
import re
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from deployments import native_loading
from deployments.checkpoint_files import CheckpointError, pretrained_folder
from deployments.contract.model import RewriterSpec

logger = logging.getLogger(__name__)

MAX_LENGTH = 4000
"""Characters of a rewritten prompt at most, its table included."""
RATIO_TOKENS = 24
"""Enough for a ratio and the sentence that some models put it into."""

_MIN_RELATIVE_PROBABILITY = 0.1
"""Share of the likeliest token's probability below which a token is never taken: one odd word derails the rest."""

_TABLE_START = re.compile(r"\[\s*\{")
_MAX_STARTS = 32
"""Positions that may look like the start of a table; bounds the work for hostile text."""

_QUOTES = ('""', "“”", "''", "``")


class Rewriter:
    """Rewrites prompts with one model and its tokenizer. Not thread-safe."""

    def __init__(self, spec: RewriterSpec) -> None:
        """Loads the checkpoint. Raises CheckpointError."""
        self._spec = spec
        self._device = torch.device(native_loading.device_for(spec.device))
        self._tokenizer, self._model = _load(spec, native_loading.precision_for(spec.dtype, self._device))
        self._model.eval().to(self._device)
        self._is_chat_model = bool(self._tokenizer.chat_template)
        self._end_tokens = self._read_end_tokens()
        limit = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        self._max_input = None if limit is None else limit - spec.max_new_tokens
        if self._max_input is not None and self._max_input <= 0:
            raise CheckpointError(f"{spec.checkpoint} holds {limit} tokens: no room for {spec.max_new_tokens} new ones")
        mode = "answers" if self._can_follow(spec.instruction) else "continues"
        logger.info("%s %s prompts on %s, %s", spec.checkpoint, mode, self._device, self._model.dtype)

    def rewrite(self, prompt: str, seed: int, *, edit: bool = False) -> str:
        """Returns the new prompt, or `prompt` itself if the model gives nothing usable or too much.

        With `edit`, the prompt says how to change an image. Only a chat model rewrites it, as another would continue it
        with words that would be painted, too.
        """
        text, table = split_table(prompt)
        if not text.strip() or len(prompt) >= MAX_LENGTH:
            return prompt
        instruction = self._spec.edit_instruction if edit else self._spec.instruction
        if self._can_follow(instruction):
            better = self._answer(instruction, text, seed)
        else:
            better = "" if edit else self._continue_text(text, seed)
        rewritten = better + table
        return rewritten if better and len(rewritten) <= MAX_LENGTH else prompt

    def ratio(self, prompt: str, seed: int) -> str:
        """Returns a text, in any words, with the ratio of width to height that suits an image of the prompt.

        This is the answer of a chat model; another one rewrites the prompt.
        """
        text, _ = split_table(prompt)
        if not self._can_follow(self._spec.ratio_instruction):
            return self.rewrite(text, seed)
        if not text.strip() or len(prompt) >= MAX_LENGTH:
            return ""
        return self._answer(self._spec.ratio_instruction, text, seed, RATIO_TOKENS)

    def _can_follow(self, instruction: str) -> bool:
        return bool(instruction) and self._is_chat_model

    def _answer(self, instruction: str, text: str, seed: int, max_tokens: int | None = None) -> str:
        messages = [{"role": "system", "content": instruction}, {"role": "user", "content": text}]
        # Only templates of reasoning models use the last argument.
        chat = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        tokens = self._tokenizer(chat, add_special_tokens=False, verbose=False)["input_ids"]
        if self._max_input is not None and len(tokens) > self._max_input:
            return ""  # a chat can't be truncated
        # The model must not add a region table.
        return split_table(clean_answer(self._generate(tokens, seed, max_tokens)))[0]

    def _continue_text(self, text: str, seed: int) -> str:
        text = text.rstrip()
        tokens = self._tokenizer(text, verbose=False)["input_ids"]
        # Keeps the end, which matters most for the continuation.
        tokens = tokens if self._max_input is None else tokens[-self._max_input :]
        continuation = self._generate(tokens, seed).partition("\n")[0].rstrip()
        return text + continuation if any(map(str.isalnum, continuation)) else ""

    @torch.inference_mode()
    def _generate(self, tokens: list[int], seed: int, max_tokens: int | None = None) -> str:
        """Returns what the model writes after `tokens`, in whole phrases and up to `max_tokens`; empty if it is no
        text.

        Samples with its own generator on the CPU, so that other threads and the kind of device have no influence.
        """
        generator = torch.Generator().manual_seed(seed)
        new_tokens: list[int] = []
        unread, cache = tokens, None
        for _ in range(min(max_tokens or self._spec.max_new_tokens, self._spec.max_new_tokens)):
            ids = torch.tensor([unread], device=self._device)
            output = self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            logits = output.logits[0, -1].float().cpu()
            if logits.isnan().any():
                return ""
            token = self._pick(logits, generator)
            if token in self._end_tokens:
                return self._text(new_tokens)
            new_tokens.append(token)
            unread, cache = [token], output.past_key_values
        return cut_to_phrase(self._text(new_tokens))

    def _pick(self, logits: Tensor, generator: torch.Generator) -> int:
        if self._spec.temperature <= 0:
            return int(logits.argmax())
        probabilities = torch.softmax(logits / self._spec.temperature, dim=-1)
        probabilities[probabilities < _MIN_RELATIVE_PROBABILITY * probabilities.max()] = 0
        return int(torch.multinomial(probabilities, 1, generator=generator))

    def _text(self, tokens: list[int]) -> str:
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return "" if "\ufffd" in text else text

    def _read_end_tokens(self) -> frozenset[int]:
        """Returns the end tokens. Those of chat models are in the generation config, not in the tokenizer."""
        eos = self._model.generation_config.eos_token_id
        ends = set(eos if isinstance(eos, list) else [eos]) | {self._tokenizer.eos_token_id}
        return frozenset(end for end in ends if end is not None)


def split_table(prompt: str) -> tuple[str, str]:
    """Returns the words of a prompt, and the region table at its end with the space before it; empty without one."""
    if prompt.rstrip().endswith("]"):
        for start in islice(_TABLE_START.finditer(prompt), _MAX_STARTS):
            try:
                json.loads(prompt[start.start() :])
            except (ValueError, RecursionError):
                continue
            words = prompt[: start.start()].rstrip()
            return words, prompt[len(words) :]
    return prompt, ""


def clean_answer(answer: str) -> str:
    """Returns an answer without the thoughts before it and quotes around it; empty if it is all thoughts."""
    answer = answer.rpartition("</think>")[2].strip()
    if "<think>" in answer:
        return ""
    for opening, closing in _QUOTES:
        inside = answer[1:-1]
        if answer == opening + inside + closing and opening not in inside and closing not in inside:
            return inside.strip()
    return answer


def cut_to_phrase(text: str) -> str:
    """Cuts a truncated text after its last complete phrase."""
    end = max(text.rfind(mark) for mark in ",;.!?\n")
    return text[: end + 1].rstrip(",; \n")


def _load(spec: RewriterSpec, dtype: torch.dtype) -> tuple[Any, Any]:
    folder = pretrained_folder(spec.checkpoint, spec.revision)
    transformers_logging.disable_progress_bar()  # useless in a replica's log
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=dtype)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{spec.checkpoint} can't be loaded as a language model: {error}") from error
    return tokenizer, model

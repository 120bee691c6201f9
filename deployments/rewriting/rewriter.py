"""The prompt rewriter: a causal language model, deterministic by seed, that also suggests a ratio.

A prompt may end with a region table, a JSON array of objects. The model never sees it, and it stays at the end as it
is. Whatever else the model does, there is a usable prompt afterwards: at worst the one that was sent.
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

LONGEST = 4000
"""Characters of a rewritten prompt, its table included."""
RATIO_TOKENS = 24
"""Enough for a ratio, and for the sentence that some models put it into."""

_MIN_RELATIVE_PROBABILITY = 0.1
"""A token with a smaller share of the likeliest one's chance is never taken: one odd word derails all that follow."""

_TABLE_START = re.compile(r"\[\s*\{")
_MAX_STARTS = 32
"""How many places may look like the start of a table; bounds the work on hostile text."""

_QUOTES = ('""', "“”", "''", "``")


class Rewriter:
    """One model and its tokenizer. Not to be used by two threads at a time."""

    def __init__(self, spec: RewriterSpec) -> None:
        """Loads the checkpoint, which takes a while. Raises CheckpointError."""
        self._spec = spec
        self._device = torch.device(native_loading.device_for(spec.device))
        self._tokenizer, self._model = _load(spec, native_loading.precision_for(spec.dtype, self._device))
        self._model.eval().to(self._device)
        self._knows_chats = bool(self._tokenizer.chat_template)
        self._ends = self._end_tokens()
        limit = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        self._room = None if limit is None else limit - spec.max_new_tokens
        if self._room is not None and self._room <= 0:
            raise CheckpointError(f"{spec.checkpoint} holds {limit} tokens: no room for {spec.max_new_tokens} new ones")
        mode = "answers" if self._can_follow(spec.instruction) else "continues"
        logger.info("%s %s prompts on %s, %s", spec.checkpoint, mode, self._device, self._model.dtype)

    def rewrite(self, prompt: str, seed: int, *, edit: bool = False) -> str:
        """The new prompt; `prompt` itself when the model has nothing usable to say or no more than that would fit.

        An `edit` says how to change an image. Only a model that can be told so rewrites one: what else follows the
        words would be painted as well.
        """
        text, table = split_table(prompt)
        if not text.strip() or len(prompt) >= LONGEST:
            return prompt
        instruction = self._spec.edit_instruction if edit else self._spec.instruction
        if self._can_follow(instruction):
            better = self._answer(instruction, text, seed)
        else:
            better = "" if edit else self._continue_text(text, seed)
        rewritten = better + table
        return rewritten if better and len(rewritten) <= LONGEST else prompt

    def ratio(self, prompt: str, seed: int) -> str:
        """A text that says which ratio of width to height suits an image of the prompt, in whatever words.

        That is the model's answer, or, of one that can't be asked, the prompt as it rewrites it.
        """
        text, _ = split_table(prompt)
        if not self._can_follow(self._spec.ratio_instruction):
            return self.rewrite(text, seed)
        if not text.strip() or len(prompt) >= LONGEST:
            return ""
        return self._answer(self._spec.ratio_instruction, text, seed, RATIO_TOKENS)

    def _can_follow(self, instruction: str) -> bool:
        return bool(instruction) and self._knows_chats

    def _answer(self, instruction: str, text: str, seed: int, most: int | None = None) -> str:
        messages = [{"role": "system", "content": instruction}, {"role": "user", "content": text}]
        # Templates of models that think before they answer know the last argument; others ignore it.
        chat = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        tokens = self._tokenizer(chat, add_special_tokens=False, verbose=False)["input_ids"]
        if self._room is not None and len(tokens) > self._room:
            return ""  # without its beginning a chat makes no sense
        # Where things go in the image is not the model's to decide.
        return split_table(clean_answer(self._generate(tokens, seed, most)))[0]

    def _continue_text(self, text: str, seed: int) -> str:
        text = text.rstrip()
        tokens = self._tokenizer(text, verbose=False)["input_ids"]
        # The end matters most to what follows.
        tokens = tokens if self._room is None else tokens[-self._room :]
        continuation = self._generate(tokens, seed).partition("\n")[0].rstrip()
        return text + continuation if any(map(str.isalnum, continuation)) else ""

    @torch.inference_mode()
    def _generate(self, tokens: list[int], seed: int, most: int | None = None) -> str:
        """What the model writes after `tokens`, in whole phrases; empty when it makes no sense as text.

        That is at most `most` tokens, where it is given.

        Draws come from a generator of its own on the CPU: no other thread and no kind of device has a part in them.
        """
        generator = torch.Generator().manual_seed(seed)
        new_tokens: list[int] = []
        unread, cache = tokens, None
        for _ in range(min(most or self._spec.max_new_tokens, self._spec.max_new_tokens)):
            ids = torch.tensor([unread], device=self._device)
            output = self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            logits = output.logits[0, -1].float().cpu()
            if logits.isnan().any():
                return ""
            token = self._pick(logits, generator)
            if token in self._ends:
                return self._text(new_tokens)
            new_tokens.append(token)
            unread, cache = [token], output.past_key_values
        return whole_phrases(self._text(new_tokens))

    def _pick(self, logits: Tensor, generator: torch.Generator) -> int:
        if self._spec.temperature <= 0:
            return int(logits.argmax())
        probabilities = torch.softmax(logits / self._spec.temperature, dim=-1)
        probabilities[probabilities < _MIN_RELATIVE_PROBABILITY * probabilities.max()] = 0
        return int(torch.multinomial(probabilities, 1, generator=generator))

    def _text(self, tokens: list[int]) -> str:
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return "" if "\ufffd" in text else text

    def _end_tokens(self) -> frozenset[int]:
        """Chat models end with other tokens than the tokenizer names; their generation config lists them."""
        eos = self._model.generation_config.eos_token_id
        ends = set(eos if isinstance(eos, list) else [eos]) | {self._tokenizer.eos_token_id}
        return frozenset(end for end in ends if end is not None)


def split_table(prompt: str) -> tuple[str, str]:
    """The words of a prompt, and the region table at its end with the space before it (empty: there is none)."""
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
    """The answer without the thoughts before it and the quotes around it; empty when it never got past thinking."""
    answer = answer.rpartition("</think>")[2].strip()
    if "<think>" in answer:
        return ""
    for opening, closing in _QUOTES:
        inside = answer[1:-1]
        if answer == opening + inside + closing and opening not in inside and closing not in inside:
            return inside.strip()
    return answer


def whole_phrases(text: str) -> str:
    """A text that was cut off, up to the last phrase that is surely complete."""
    end = max(text.rfind(mark) for mark in ",;.!?\n")
    return text[: end + 1].rstrip(",; \n")


def _load(spec: RewriterSpec, dtype: torch.dtype) -> tuple[Any, Any]:
    """The tokenizer and the model."""
    folder = pretrained_folder(spec.checkpoint, spec.revision)
    transformers_logging.disable_progress_bar()  # a bar is no use in a replica's log
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=dtype)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{spec.checkpoint} can't be loaded as a language model: {error}") from error
    return tokenizer, model

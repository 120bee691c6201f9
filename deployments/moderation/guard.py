"""The guard-model classifier: a causal language model that answers in words, such as Qwen3Guard-Gen.

The model gets its own chat template and answers (https://huggingface.co/Qwen/Qwen3Guard-Gen-0.6B):

    Safety: Unsafe
    Categories: Violent, Non-violent Illegal Acts

An answer in another form is an error, as nothing was moderated then.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from deployments.checkpoint_files import CheckpointError
from deployments.contract.moderation import CATEGORIES, ClassifierSpec, Scores
from deployments.moderation.classifiers import load_pretrained

logger = logging.getLogger(__name__)

SEVERITIES: Final = MappingProxyType({"safe": 0.0, "controversial": 0.5, "unsafe": 0.95})

MEANINGS: Final[Mapping[str, str | None]] = MappingProxyType(
    {
        "Violent": "violence",
        "Non-violent Illegal Acts": "illegal acts",
        "Sexual Content or Sexual Acts": "sexual content",
        "Suicide & Self-Harm": "self-harm",
        "Unethical Acts": "hate",
        # Outside our categories, unless the labels of a spec map them.
        "PII": None,
        "Personally Identifiable Information": None,
        "Politically Sensitive Topics": None,
        "Copyright Violation": None,
        "Jailbreak": None,
    }
)
"""Our categories by those of the model. It has none for child safety, which the blocklist covers."""

NEW_TOKENS: Final = 64
"""Tokens of an answer at most; about 20 are usual. Categories beyond are lost."""

_BATCH: Final = 8192
"""Tokens moderated at a time, padding included."""
_MIN_PART: Final = 100
"""Characters of a text that is not divided further, and of the overlap of two parts."""

_SAFETY: Final = re.compile(r"\bsafety\s*:\s*\W*(safe|unsafe|controversial)\b", re.IGNORECASE)
_CATEGORIES: Final = re.compile(r"\bcategor(?:y|ies)\s*:([^\n]*)", re.IGNORECASE)


class Guard:
    """Scores texts with one model and its tokenizer. Not thread-safe."""

    def __init__(self, spec: ClassifierSpec) -> None:
        """Loads the checkpoint. `spec.labels` map the model's categories to ours. Raises CheckpointError."""
        self._meanings = meanings(spec.labels)
        self._tokenizer, self._model = load_pretrained(spec, AutoModelForCausalLM)
        if not self._tokenizer.chat_template:
            raise CheckpointError(f"{spec.checkpoint} has no chat template: it is no guard")
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        if self._tokenizer.pad_token_id is None:
            raise CheckpointError(f"the tokenizer of {spec.checkpoint} has no token to pad with")
        self._tokenizer.padding_side = "left"
        # Without chat markers, a text can't end its turn and answer for the model.
        marks = sorted({*self._tokenizer.all_special_tokens, *self._tokenizer.get_added_vocab()}, key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, marks)))
        self._max_tokens = self._model.config.get_text_config().max_position_embeddings - NEW_TOKENS
        self._greedy = GenerationConfig(
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            pad_token_id=self._tokenizer.pad_token_id,
            eos_token_id=self._model.generation_config.eos_token_id or self._tokenizer.eos_token_id,
        )
        logger.info("%s scores texts on %s, %s", spec.checkpoint, self._model.device, self._model.dtype)

    def classify(self, texts: Sequence[str]) -> list[Scores]:
        """Raises ValueError if the model gives no verdict."""
        questions = [(number, tokens) for number, text in enumerate(texts) for tokens in self._questions(text)]
        scores: list[dict[str, float]] = [{} for _ in texts]
        for batch in _batches(questions):
            answers = self._answers([tokens for _, tokens in batch])
            for (number, _), answer in zip(batch, answers, strict=True):
                for category, score in parse_answer(answer, self._meanings).items():
                    scores[number][category] = max(score, scores[number].get(category, 0.0))
        return list(scores)

    def _questions(self, text: str) -> Iterator[list[int]]:
        """Yields the tokens of a chat about the text, or about each of its parts if the whole is too long."""
        chat = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": self._marks.sub(" ", text)}], tokenize=False, add_generation_prompt=True
        )
        tokens = self._tokenizer(chat, add_special_tokens=False, verbose=False)["input_ids"]
        if len(tokens) <= self._max_tokens:
            yield tokens
        elif len(text) <= 2 * _MIN_PART:
            raise ValueError(
                f"a text of {len(text)} characters takes {len(tokens)} tokens; {self._max_tokens} are possible"
            )
        else:
            middle = len(text) // 2
            yield from self._questions(text[: middle + _MIN_PART // 2])
            yield from self._questions(text[middle - _MIN_PART // 2 :])

    @torch.inference_mode()
    def _answers(self, questions: list[list[int]]) -> list[str]:
        inputs = self._tokenizer.pad({"input_ids": questions}, return_tensors="pt").to(self._model.device)
        output = self._model.generate(**inputs, generation_config=self._greedy)
        return self._tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def meanings(labels: Mapping[str, str]) -> Mapping[str, str | None]:
    """Returns our categories by the model's, in lower case. Raises CheckpointError for unknown ones."""
    result = {name.casefold(): meaning for name, meaning in MEANINGS.items()}
    for label, category in labels.items():
        if label.casefold() not in result:
            raise CheckpointError(f"a guard has no category {label!r}; there are: {', '.join(MEANINGS)}")
        if category not in CATEGORIES:
            raise CheckpointError(f"{label!r} can't mean {category!r}, which is none of {', '.join(CATEGORIES)}")
        result[label.casefold()] = category
    return result


def parse_answer(answer: str, meanings: Mapping[str, str | None]) -> Scores:
    """Returns the scores of an answer. Raises ValueError without a verdict, or without a known category."""
    verdict = answer.rpartition("</think>")[2].partition("<think>")[0]
    severities = {severity.casefold() for severity in _SAFETY.findall(verdict)}
    if len(severities) != 1:
        raise ValueError(f"the guard gave no verdict: {answer[:200]!r}")
    score = SEVERITIES[severities.pop()]
    if score == 0:
        return {}
    categories = " ".join(_CATEGORIES.findall(verdict)).casefold()
    names = [name for name in meanings if re.search(rf"(?<![\w-]){re.escape(name)}(?!\w)", categories)]
    if not names:
        raise ValueError(f"the guard named no category that is known: {answer[:200]!r}")
    return {category: score for name in names if (category := meanings[name]) is not None}


def _batches(questions: list[tuple[int, list[int]]]) -> Iterator[list[tuple[int, list[int]]]]:
    """Yields batches of about the same length, for little padding."""
    batch: list[Any] = []
    for question in sorted(questions, key=lambda question: len(question[1])):
        if batch and (len(batch) + 1) * len(question[1]) > _BATCH:
            yield batch
            batch = []
        batch.append(question)
    if batch:
        yield batch

"""The LTX-2 checkpoint as a student: its transformer, its text encoder, and what connects them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deployments.contract.clip import FPS
from training.build.checkpoints import component
from training.lessons.clips import ClipBatch
from training.trainer.student import Student, tokenized
from training.worlds.clips.drawing import latent_frames

_TIMES = 1000.0
"""What times are multiplied with before a transformer gets them, as schedulers do."""


class ClipStudent(Student):
    name = "ltx2"

    def __init__(self) -> None:
        self.transformer, self.text_encoder, self.connectors, self._tokenizer = (
            component(self.name, part) for part in ("transformer", "text_encoder", "connectors", "tokenizer")
        )

    def networks(self) -> dict[str, nn.Module]:
        return {"transformer": self.transformer, "text_encoder": self.text_encoder, "connectors": self.connectors}

    def velocity(self, x: Tensor, tone: Tensor, t: Tensor, batch: ClipBatch) -> tuple[Tensor, Tensor]:
        """Of tokens (B, N, C), of which the given ones are clean, and a tone (B, L, pitches) at times `t` (B,)."""
        count, kept = x.shape[:2]
        rows, columns = batch.grid
        times = t[:, None] * _TIMES
        coordinates = self.transformer.rope.prepare_video_coords(
            count, latent_frames(batch.frames), rows, columns, x.device, fps=FPS
        )
        # Given tokens and keyframes are at the end of their way.
        video_times = torch.cat([times * ~batch.given, torch.zeros(count, batch.keyframes.shape[1])], dim=1)
        text, sound_text, mask = self._text(batch)
        video, sound = self.transformer(
            hidden_states=torch.cat([x, batch.keyframes], dim=1),
            audio_hidden_states=tone,
            encoder_hidden_states=text,
            audio_encoder_hidden_states=sound_text,
            timestep=video_times,
            audio_timestep=times[:, 0],
            sigma=times[:, 0],
            encoder_attention_mask=mask,
            audio_encoder_attention_mask=mask,
            audio_num_frames=tone.shape[1],
            video_coords=torch.cat([coordinates, batch.keyframe_coordinates.expand(count, -1, -1, -1)], dim=2),
            use_cross_timestep=True,
            return_dict=False,
        )
        return video[:, :kept], sound

    def _text(self, batch: ClipBatch) -> tuple[Tensor, Tensor, Tensor]:
        """For both streams, (B, L, width) each, and which tokens are attended, (B, L): padding is, too."""
        told = [prompt.strip() for prompt in batch.prompts]
        tokens = tokenized(self._tokenizer, told, self.transformer.training)
        read = self.text_encoder.model.language_model(**tokens, output_hidden_states=True)
        states = torch.stack(read.hidden_states, dim=-1).flatten(2, 3)
        return self.connectors(states, tokens["attention_mask"], padding_side="left")

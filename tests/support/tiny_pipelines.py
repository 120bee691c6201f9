"""Tiny checkpoints with random weights, one for each architecture of diffusers.

They make noise with the classes, schedulers, steps and compression of the real ones. The prompt changes the noise.
Tokenizers come from bundled checkpoints.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import diffusers
import torch
import transformers
from diffusers.pipelines import ltx2
from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
from torch import nn

from deployments.contract.model import BUNDLED

_D: Final[Any] = diffusers
_T: Final[Any] = transformers
_LTX2: Final[Any] = ltx2
"""Typed as Any: the annotations of diffusers' constructors are incomplete."""

_WIDTH: Final = 32
"""Width of text encoders and transformers."""
_HALF: Final = _WIDTH // 2
"""Width of each of two joined text encoders, and of audio."""
_HEADS: Final = {"num_attention_heads": 2, "attention_head_dim": 16}
_ROPE: Final = (8, 4, 4)
"""A head's dimensions for each axis of positions."""
_LATENTS: Final = 4
"""Channels of most latents."""
_CHAT: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build(name: str, folder: Path) -> Path:
    """Writes the checkpoint `name` of `PIPELINES` or `SPECIAL_PIPELINES`, with the same weights each time."""
    (PIPELINES | SPECIAL_PIPELINES)[name](folder)
    return folder


def _write(make: Callable[[], Any], folder: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        pipeline = make()
        for part in pipeline.components.values():
            if isinstance(part, nn.Module):
                _draw(part)
    pipeline.save_pretrained(folder)


@torch.no_grad()
def _draw(part: nn.Module) -> None:
    """Draws all weights. Some are initialized with zeros, so that prompts had no effect, or not at all."""
    for weight in part.parameters():
        if weight.ndim > 1:
            weight.normal_(std=weight[0].numel() ** -0.5)


# Text


def _tokenizer(folder: str) -> Any:
    return _T.AutoTokenizer.from_pretrained(BUNDLED / folder, local_files_only=True)


def _clip(index: int = 1, pooled: bool = False) -> dict[str, Any]:
    """Returns the pipeline's text encoder number `index` and its tokenizer."""
    sizes = {"hidden_size": _HALF, "intermediate_size": _WIDTH, "projection_dim": _HALF, "num_hidden_layers": 2}
    tokens = {"vocab_size": 1024, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    kind = _T.CLIPTextModelWithProjection if pooled else _T.CLIPTextModel
    encoder = kind(_T.CLIPTextConfig(**sizes, **tokens, num_attention_heads=2))
    return _numbered(index, encoder, _tokenizer("flux/tokenizer"))


def _t5(index: int = 1, kind: str = "T5", vocabulary: int = 387, tokenizer: Any = None) -> dict[str, Any]:
    sizes = {"d_model": _WIDTH, "d_kv": 8, "d_ff": _WIDTH, "num_heads": 4, "num_layers": 2, "vocab_size": vocabulary}
    config = getattr(_T, f"{kind}Config")(**sizes, feed_forward_proj="gated-gelu")
    encoder = getattr(_T, f"{kind}EncoderModel")(config)
    return _numbered(index, encoder, tokenizer or _tokenizer("flux/tokenizer_2"))


def _numbered(index: int, encoder: Any, tokenizer: Any) -> dict[str, Any]:
    suffix = f"_{index}" if index > 1 else ""
    return {f"text_encoder{suffix}": encoder, f"tokenizer{suffix}": tokenizer}


def _decoder_sizes(**more: Any) -> dict[str, Any]:
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    return {"hidden_size": _WIDTH, "intermediate_size": _WIDTH, "num_hidden_layers": 2} | heads | more


def _qwen_sizes(**more: Any) -> dict[str, Any]:
    return _decoder_sizes(vocab_size=2159, bos_token_id=None, eos_token_id=0, pad_token_id=0, **more)


def _qwen_vl_sizes() -> dict[str, Any]:
    """Returns sizes for positions with three axes."""
    return _qwen_sizes(rope_parameters={"rope_type": "default", "mrope_section": [2, 3, 3]})


def _qwen(encoder: Any) -> dict[str, Any]:
    tokenizer = _tokenizer("flux3/tokenizer")
    tokenizer.chat_template = _CHAT
    return _numbered(1, encoder, tokenizer)


def _qwen_vl() -> dict[str, Any]:
    eyes = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": _WIDTH}
    tokens = {"vision_start_token_id": 3, "vision_end_token_id": 4, "image_token_id": 5, "video_token_id": 6}
    config = _T.Qwen2_5_VLConfig(text_config=_qwen_vl_sizes(), vision_config=eyes, **tokens)
    return _qwen(_T.Qwen2_5_VLForConditionalGeneration(config))


@cache
def image_processor() -> Any:
    """Returns the class of Qwen-Image-Edit's processor for images only; the one for videos needs torchvision.

    Pass `image_processor().from_pretrained(folder / "processor")` to the pipeline's `from_pretrained` as `processor`.
    """

    class Qwen2VLProcessor(_T.Qwen2VLProcessor):
        __module__ = _T.Qwen2VLProcessor.__module__

        def __init__(self, image_processor: Any, tokenizer: Any, chat_template: str | None = None) -> None:
            super().__init__(image_processor, tokenizer, chat_template=chat_template)

        def save_pretrained(self, folder: Path, *args: Any, **options: Any) -> None:
            super().save_pretrained(folder, *args, **options)
            videos = '{"video_processor_type": "Qwen2VLVideoProcessor"}'
            (Path(folder) / "video_preprocessor_config.json").write_text(videos)

    return Qwen2VLProcessor


# Images


def _flow(**settings: Any) -> Any:
    return _D.FlowMatchEulerDiscreteScheduler(**settings)


def _image_vae(**settings: Any) -> Any:
    """Returns an autoencoder that compresses 8 x 8 pixels."""
    down, up = ("DownEncoderBlock2D",) * 4, ("UpDecoderBlock2D",) * 4
    sizes = {"block_out_channels": (8,) * 4, "layers_per_block": 1, "norm_num_groups": 2, "latent_channels": _LATENTS}
    return _D.AutoencoderKL(down_block_types=down, up_block_types=up, sample_size=64, **sizes, **settings)


def _flow_parts(transformer: Any, shift: float) -> dict[str, Any]:
    """Adds the parts that pipelines after SDXL share."""
    scale = {"scaling_factor": 0.3611, "shift_factor": 0.1159, "use_quant_conv": False, "use_post_quant_conv": False}
    return {"transformer": transformer, "scheduler": _flow(shift=shift), "vae": _image_vae(**scale)}


def _sdxl() -> Any:
    down, up = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
    blocks = {"down_block_types": down, "up_block_types": up, "block_out_channels": (8, 16), "layers_per_block": 1}
    attention = {"attention_head_dim": (1, 2), "transformer_layers_per_block": (1, 1), "cross_attention_dim": 2 * _HALF}
    # Six numbers for sizes, then the pooled text.
    added = {"addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 6 * 8 + _HALF}
    more = {"addition_embed_type": "text_time", "use_linear_projection": True, "norm_num_groups": 2, "sample_size": 8}
    noise = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    parts = {
        "unet": _D.UNet2DConditionModel(**blocks, **attention, **added, **more),
        "scheduler": _D.EulerDiscreteScheduler(**noise, steps_offset=1, timestep_spacing="leading"),
        "vae": _image_vae(scaling_factor=0.13025),
    }
    return _D.StableDiffusionXLPipeline(**parts, **_clip(), **_clip(2, pooled=True), add_watermarker=False)


def _sd15() -> Any:
    blocks = {"down_block_types": ("CrossAttnDownBlock2D",), "up_block_types": ("CrossAttnUpBlock2D",)}
    sizes = {"block_out_channels": (8,), "layers_per_block": 1, "norm_num_groups": 2, "sample_size": 8}
    unet = _D.UNet2DConditionModel(**blocks, **sizes, attention_head_dim=2, cross_attention_dim=_HALF)
    unsafe = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    return _D.StableDiffusionPipeline(
        unet=unet, scheduler=_D.DDIMScheduler(steps_offset=1, clip_sample=False), vae=_image_vae(), **_clip(), **unsafe
    )


def _sd3() -> Any:
    sizes = {"sample_size": 8, "pos_embed_max_size": 32, "in_channels": _LATENTS, "out_channels": _LATENTS, **_HEADS}
    text = {"joint_attention_dim": _WIDTH, "caption_projection_dim": _WIDTH, "pooled_projection_dim": 2 * _HALF}
    layers = {"num_layers": 2, "qk_norm": "rms_norm", "dual_attention_layers": (0,)}
    parts = _flow_parts(_D.SD3Transformer2DModel(**sizes, **text, **layers), 3.0)
    return _D.StableDiffusion3Pipeline(**parts, **_clip(pooled=True), **_clip(2, pooled=True), **_t5(3))


def _packed_sizes() -> dict[str, Any]:
    """Returns sizes of transformers with patches of 2 x 2 latents."""
    return {"in_channels": 4 * _LATENTS, "joint_attention_dim": _WIDTH, "axes_dims_rope": _ROPE, **_HEADS}


def _qwen_image(kind: str) -> Any:
    shift = {"base_shift": 0.5, "max_shift": 0.9, "max_image_seq_len": 8192, "shift_terminal": 0.02}
    parts = _qwen_vl()
    parts["transformer"] = _D.QwenImageTransformer2DModel(**_packed_sizes(), out_channels=_LATENTS, num_layers=2)
    parts["scheduler"] = _flow(use_dynamic_shifting=True, **shift)
    parts["vae"] = _D.AutoencoderKLQwenImage(**_wan_vae_sizes())
    if "Edit" in kind:
        images = _T.Qwen2VLImageProcessorPil(size={"shortest_edge": 56 * 56, "longest_edge": 112 * 112})
        parts["processor"] = image_processor()(images, parts["tokenizer"])
    return getattr(_D, kind)(**parts)


def _z_image() -> Any:
    sizes = {"in_channels": _LATENTS, "dim": _WIDTH, "n_layers": 2, "n_refiner_layers": 1, "cap_feat_dim": _WIDTH}
    positions = {"axes_dims": list(_ROPE), "axes_lens": [1024, 64, 64]}
    transformer = _D.ZImageTransformer2DModel(**sizes, **positions, n_heads=2, n_kv_heads=2)
    encoder = _T.Qwen3Model(_T.Qwen3Config(**_qwen_sizes()))
    return _D.ZImagePipeline(**_flow_parts(transformer, 3.0), **_qwen(encoder))


def _flux_schnell() -> Any:
    sizes = {**_packed_sizes(), "num_layers": 1, "num_single_layers": 1, "pooled_projection_dim": _HALF}
    transformer = _D.FluxTransformer2DModel(**sizes, guidance_embeds=False)
    return _D.FluxPipeline(**_flow_parts(transformer, 1.0), **_clip(), **_t5(2))


def _chroma() -> Any:
    guide = {"approximator_num_channels": 16, "approximator_hidden_dim": _WIDTH, "approximator_layers": 1}
    with warnings.catch_warnings():
        # diffusers imports its own class from a deprecated place.
        warnings.filterwarnings("ignore", "`FluxPosEmbed` is deprecated", FutureWarning)
        transformer = _D.ChromaTransformer2DModel(**_packed_sizes(), **guide, num_layers=1, num_single_layers=1)
    return _D.ChromaPipeline(**_flow_parts(transformer, 3.0), **_t5())


# Video


def _wan_vae_sizes() -> dict[str, Any]:
    """Returns sizes of an autoencoder that compresses 8 x 8 pixels and 4 frames, also for Qwen-Image."""
    scale = {"latents_mean": [0.0] * _LATENTS, "latents_std": [1.0] * _LATENTS}
    sizes = {"base_dim": 8, "dim_mult": [1, 1, 1, 1], "z_dim": _LATENTS, "num_res_blocks": 0}
    return {**sizes, **scale, "temperal_downsample": [False, True, True]}


def _wan(kind: str, channels: int, boundary: float) -> Any:
    """Returns a pipeline of Wan 2.2, which has one transformer for the first steps and one for the rest."""
    sizes = {"in_channels": channels, "out_channels": _LATENTS, "text_dim": _WIDTH, "ffn_dim": _WIDTH, "num_layers": 2}
    flow = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
    parts = {name: _D.WanTransformer3DModel(**sizes, **_HEADS) for name in ("transformer", "transformer_2")}
    parts["scheduler"] = _D.UniPCMultistepScheduler(**flow)
    parts["vae"] = _D.AutoencoderKLWan(**_wan_vae_sizes())
    return getattr(_D, kind)(**parts, **_t5(kind="UMT5"), boundary_ratio=boundary)


def _hunyuan_video() -> Any:
    # The noise, the image (none here) and its mask.
    channels = {"in_channels": 2 * _LATENTS + 1, "out_channels": _LATENTS, "image_embed_dim": 12}
    text = {"text_embed_dim": _WIDTH, "text_embed_2_dim": _WIDTH, "num_refiner_layers": 1}
    sizes = {**_HEADS, "rope_axes_dim": (4, 4, 8), "num_layers": 1, "mlp_ratio": 2.0, "target_size": 64}
    vae = {"latent_channels": _LATENTS, "block_out_channels": (8,) * 5, "layers_per_block": 1}
    return _D.HunyuanVideo15Pipeline(
        transformer=_D.HunyuanVideo15Transformer3DModel(**channels, **text, **sizes),
        scheduler=_flow(shift=7.0),
        vae=_D.AutoencoderKLHunyuanVideo15(**vae),
        guider=_D.ClassifierFreeGuidance(guidance_scale=6.0),
        **_qwen(_T.Qwen2_5_VLTextModel(_T.Qwen2_5_VLTextConfig(**_qwen_vl_sizes()))),
        **_t5(2, vocabulary=384, tokenizer=_T.ByT5Tokenizer()),
    )


def _ltx2() -> Any:
    """Returns a pipeline of generation 2.5: Gemma 4 for text, a head for durations, no rewriter."""
    rope = {"rope_type": "split", "rope_double_precision": True}
    sizes = {"in_channels": 8, "out_channels": 8, "cross_attention_dim": _WIDTH, **_HEADS}
    audio_sizes = {**sizes, "cross_attention_dim": _HALF, "attention_head_dim": 8}
    gates = {"gated_attn": True, "cross_attn_mod": True}
    news = {"ff_bias": False, "use_prompt_embeddings": False, "use_keyframes_abs_pos_embedding": True}
    blocks = {**gates, "perturbed_attn": True, "num_layers": 2, **rope}
    transformer = _D.LTX2VideoTransformer3DModel(**sizes, **_prefixed("audio", audio_sizes | gates), **blocks, **news)
    # The text encoder has three outputs: its input and two layers.
    text = {"caption_channels": _WIDTH, "text_proj_in_factor": 3, "per_modality_projections": True, "proj_bias": True}
    connector = {"num_attention_heads": 2, "num_layers": 1, "num_learnable_registers": 8}
    sides = {
        **_prefixed("video_connector", {**connector, "attention_head_dim": 16}),
        **_prefixed("audio_connector", {**connector, "attention_head_dim": 8}),
        **_prefixed("video", {"hidden_dim": _WIDTH, "gated_attn": True}),
        **_prefixed("audio", {"hidden_dim": _HALF, "gated_attn": True}),
    }
    ratios = {"latent_channels": 8, "spatial_compression_ratio": 32, "temporal_compression_ratio": 8}
    levels = {"block_out_channels": (8,) * 4, "layers_per_block": (1,) * 5, "spatio_temporal_scaling": (True,) * 4}
    decoder = {**levels, "inject_noise": (False,) * 5, "causal": False, "spatial_padding_mode": "zeros"}
    kinds = ("spatiotemporal", "spatiotemporal", "temporal", "spatial")
    up = _prefixed("upsample", {"type": kinds, "residual": (False,) * 4, "factor": (1,) * 4})
    vae = _D.AutoencoderKLLTX2Video(**ratios, **levels, **_prefixed("decoder", decoder), **up)
    # Two channels, of a quarter of the bins, are eight.
    audio = {"mel_bins": 16, "latent_channels": 2, "base_channels": 8, "ch_mult": (1, 1, 1), "num_res_blocks": 1}
    stage = {"in_channels": 2 * 16, "hidden_channels": 16, "resnet_kernel_sizes": [3], "resnet_dilations": [[1]]}
    bandwidth = {**stage, "upsample_factors": [15, 16], "upsample_kernel_sizes": [31, 32]}
    spectrum = {"filter_length": 128, "window_length": 128, "num_mel_channels": 16}
    waves = {**stage, "upsample_factors": [10, 16], "upsample_kernel_sizes": [20, 32], **spectrum}
    layers = {"layer_types": ["sliding_attention", "full_attention"], "global_head_dim": 16}
    config = _T.Gemma4UnifiedConfig(text_config=_decoder_sizes(vocab_size=1024, **layers))
    widths = {"video_cross_attention_dim": _WIDTH, "audio_cross_attention_dim": _HALF}
    return _D.LTX2Pipeline(
        transformer=transformer,
        connectors=_LTX2.LTX2TextConnectors(**text, **sides, **rope),
        scheduler=_flow(use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05, shift_terminal=0.1),
        vae=vae,
        audio_vae=_D.AutoencoderKLLTX2Audio(**audio),
        vocoder=_LTX2.LTX2VocoderWithBWE(**waves, **_prefixed("bwe", bandwidth)),
        duration_head=_LTX2.LTX2DurationHead(**widths, pooler_hidden_dim=16, mlp_hidden_dim=16),
        **_numbered(1, _T.Gemma4UnifiedForConditionalGeneration(config), _tokenizer("ltx2/tokenizer")),
    )


def _stable_diffusion() -> Any:
    """Returns a pipeline with the safety checker of the first checkpoints."""
    levels = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 2}
    downs = ("DownBlock2D", "CrossAttnDownBlock2D")
    ups = ("CrossAttnUpBlock2D", "UpBlock2D")
    unet = {"sample_size": 8, "down_block_types": downs, "up_block_types": ups, "cross_attention_dim": _HALF}
    vision = {"hidden_size": _HALF, "intermediate_size": _HALF, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = _T.CLIPConfig(vision_config={**vision, "image_size": 32, "patch_size": 8}, projection_dim=_HALF)
    return _D.StableDiffusionPipeline(
        unet=_D.UNet2DConditionModel(**levels, **unet, attention_head_dim=2),
        vae=_image_vae(),
        scheduler=_D.DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"),
        safety_checker=StableDiffusionSafetyChecker(config),
        feature_extractor=_clip_image_processor(),
        **_clip(),
    )


def _clip_image_processor() -> Any:
    kind = getattr(_T, "CLIPImageProcessorPil", _T.CLIPImageProcessor)
    return kind(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})


def _framepack() -> Any:
    """Returns a pipeline that makes a video in sections."""
    sizes = {"in_channels": _LATENTS, "out_channels": _LATENTS, "num_attention_heads": 2, "attention_head_dim": 16}
    layers = {"num_layers": 1, "num_single_layers": 1, "num_refiner_layers": 1, "rope_axes_dim": (4, 4, 8)}
    text = {"text_embed_dim": _WIDTH, "pooled_projection_dim": _HALF, "guidance_embeds": True}
    image = {"image_condition_type": None, "has_image_proj": True, "image_proj_dim": _WIDTH}
    vision = {"hidden_size": _WIDTH, "intermediate_size": _WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}
    blocks = {
        "down_block_types": ("HunyuanVideoDownBlock3D",) * 4,
        "up_block_types": ("HunyuanVideoUpBlock3D",) * 4,
        "block_out_channels": (8,) * 4,
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "latent_channels": _LATENTS,
    }
    llama = _T.LlamaConfig(**_decoder_sizes(vocab_size=2159), pad_token_id=0, eos_token_id=0)
    extractor = getattr(_T, "SiglipImageProcessorPil", _T.SiglipImageProcessor)
    return _D.HunyuanVideoFramepackPipeline(
        transformer=_D.HunyuanVideoFramepackTransformer3DModel(
            **sizes, **layers, **text, **image, patch_size=2, patch_size_t=1, has_clean_x_embedder=True
        ),
        vae=_D.AutoencoderKLHunyuanVideo(**blocks),
        scheduler=_flow(shift=7.0),
        image_encoder=_T.SiglipVisionModel(_T.SiglipVisionConfig(**vision, image_size=32, patch_size=8)),
        feature_extractor=extractor(size={"height": 32, "width": 32}),
        **_numbered(1, _T.LlamaModel(llama), _tokenizer("flux3/tokenizer")),
        **_clip(2),
    )


def _kandinsky5() -> Any:
    """Returns a pipeline that calls its result `image`."""
    transformer = _D.Kandinsky5Transformer3DModel(
        in_visual_dim=_LATENTS,
        out_visual_dim=_LATENTS,
        in_text_dim=_WIDTH,
        in_text_dim2=_HALF,
        time_dim=_WIDTH,
        patch_size=(1, 2, 2),
        model_dim=16,
        ff_dim=_WIDTH,
        num_text_blocks=1,
        num_visual_blocks=1,
        axes_dims=(1, 1, 2),
        attention_type="regular",
    )
    qwen = _qwen_vl()
    return _D.Kandinsky5T2IPipeline(
        transformer=transformer, vae=_image_vae(scaling_factor=0.36), scheduler=_flow(shift=7.0), **qwen, **_clip(2)
    )


def _prefixed(prefix: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}_{name}": value for name, value in settings.items()}


PIPELINES: Final[dict[str, Callable[[Path], None]]] = {
    name: partial(_write, make)
    for name, make in {
        "sdxl": _sdxl,
        "sd3": _sd3,
        "qwen-image": partial(_qwen_image, "QwenImagePipeline"),
        "qwen-image-edit": partial(_qwen_image, "QwenImageEditPipeline"),
        "qwen-image-edit-plus": partial(_qwen_image, "QwenImageEditPlusPipeline"),
        "z-image": _z_image,
        "flux-schnell": _flux_schnell,
        "chroma": _chroma,
        "wan-t2v": partial(_wan, "WanPipeline", _LATENTS, 0.875),
        # The noise, a mask of four frames, and the image.
        "wan-i2v": partial(_wan, "WanImageToVideoPipeline", 2 * _LATENTS + 4, 0.9),
        "hunyuan-video": _hunyuan_video,
        "ltx2": _ltx2,
    }.items()
}
SPECIAL_PIPELINES: Final[dict[str, Callable[[Path], None]]] = {
    name: partial(_write, make)
    for name, make in {
        "stable-diffusion": _stable_diffusion,
        "sd15": _sd15,
        "framepack": _framepack,
        "kandinsky5": _kandinsky5,
    }.items()
}
"""Pipelines that only one test each needs."""

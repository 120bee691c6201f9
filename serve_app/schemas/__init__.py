"""Request schemas by their catalog names."""

from serve_app.schemas.fields import GenerationRequest
from serve_app.schemas.general import Gen2MaxRequest, Gen2ProRequest, KontextRequest, ProRequest
from serve_app.schemas.image_klein import ImageKleinRequest
from serve_app.schemas.inpaint import CannyRequest, ControlCannyRequest, EraseRequest, FillRequest
from serve_app.schemas.outpainting import OutpaintingRequest
from serve_app.schemas.tools import DeblurRequest, TryOnV1Request, TryOnV2Request
from serve_app.schemas.video import VideoRequest

REQUESTS: dict[str, type[GenerationRequest]] = {
    "image-klein": ImageKleinRequest,
    "gen2-max": Gen2MaxRequest,
    "gen2-pro": Gen2ProRequest,
    "kontext": KontextRequest,
    "pro": ProRequest,
    "fill": FillRequest,
    "canny": CannyRequest,
    "canny-control": ControlCannyRequest,
    "erase": EraseRequest,
    "outpainting": OutpaintingRequest,
    "vto-v1": TryOnV1Request,
    "vto-v2": TryOnV2Request,
    "deblur": DeblurRequest,
    "video": VideoRequest,
}

__all__ = ["REQUESTS", "GenerationRequest"]

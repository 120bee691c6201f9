"""Bodies of generation requests, one file per family, by the name the catalog calls them."""

from serve_app.requests.canny import CannyRequest, ControlCannyRequest
from serve_app.requests.erase import EraseRequest
from serve_app.requests.fields import GenerationRequest
from serve_app.requests.fill import FillRequest
from serve_app.requests.gen2 import Gen2MaxRequest, Gen2ProRequest
from serve_app.requests.image_klein import ImageKleinRequest
from serve_app.requests.kontext import KontextRequest
from serve_app.requests.outpainting import OutpaintingRequest
from serve_app.requests.pro import ProRequest
from serve_app.requests.tools import DeblurRequest
from serve_app.requests.try_on import TryOnV1Request, TryOnV2Request
from serve_app.requests.video import VideoRequest

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

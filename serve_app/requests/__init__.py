"""Bodies of generation requests, one file per family, by the name the catalog calls them."""

from serve_app.requests.canny import CannyRequest, ControlCannyRequest
from serve_app.requests.fields import GenerationRequest
from serve_app.requests.fill import FillRequest
from serve_app.requests.gen2 import Gen2MaxRequest, Gen2ProRequest
from serve_app.requests.image_klein import ImageKleinRequest
from serve_app.requests.kontext import KontextRequest
from serve_app.requests.pro import ProRequest

REQUESTS: dict[str, type[GenerationRequest]] = {
    "image-klein": ImageKleinRequest,
    "gen2-max": Gen2MaxRequest,
    "gen2-pro": Gen2ProRequest,
    "kontext": KontextRequest,
    "pro": ProRequest,
    "fill": FillRequest,
    "canny": CannyRequest,
    "canny-control": ControlCannyRequest,
}

__all__ = ["REQUESTS", "GenerationRequest"]

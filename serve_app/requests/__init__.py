"""Bodies of generation requests, one file per family, by the name the catalog calls them."""

from serve_app.requests.fields import GenerationRequest
from serve_app.requests.image_klein import ImageKleinRequest

REQUESTS: dict[str, type[GenerationRequest]] = {"image-klein": ImageKleinRequest}

__all__ = ["REQUESTS", "GenerationRequest"]

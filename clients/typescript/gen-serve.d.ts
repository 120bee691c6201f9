// Request and response bodies of the interface.
// Generated from openapi.json by clients/python/generate_types.py. Do not edit; run `make openapi`.

/** One of the two images is needed. Unknown fields are ignored. */
export interface CannyRequest {
  /** Stronger edges than this are kept; those between are kept where they touch one. Default: `200`. */
  canny_high_threshold?: number | null;
  /** Weaker edges than this are dropped. Default: `50`. */
  canny_low_threshold?: number | null;
  /** The image to take the edges from (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). Needed unless `preprocessed_image` is sent. */
  control_image?: string | null;
  /** Higher keeps closer to the prompt, at the cost of realism. Default: `30`. */
  guidance?: number | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** An image of edges, white on black, used as it is; `control_image` and the thresholds then don't matter. */
  preprocessed_image?: string | null;
  /** Content of the image. */
  prompt: string;
  /** Rewrites the prompt for a more creative result. Default: `false`. */
  prompt_upsampling?: boolean | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Denoising steps. Fewer are faster and coarser. Default: `50`. */
  steps?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

export interface CreateLinkRequest {
  /** Seconds. Default: `86400`. */
  expires_in?: number;
}

export interface CreateUploadRequest {
  content_type: "image/jpeg" | "image/png" | "image/webp" | "video/mp4";
  /** Bytes of the file, if known. The URL accepts no more */
  size?: number | null;
}

export interface Credits {
  /** Balance after subtracting the holds of unfinished tasks */
  credits: number;
}

export interface DailyUsage {
  /** Credits */
  cost: number;
  /** UTC day on which the tasks became ready */
  day: string;
  endpoint: string;
  project: string;
  tasks: number;
}

/** Unknown fields are ignored. */
export interface DeblurRequest {
  /** The image to sharpen (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 4 megapixels; turned upright). */
  image: string;
  /** File format of the result. Default: `png`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

export interface DeleteFinetuneRequest {
  finetune_id: string;
}

export interface DeletedFinetune {
  deleted_finetune_id: string;
  message: string;
  status: string;
  timestamp: number;
}

export interface DeletedVideo {
  /** Default: `true`. */
  deleted?: boolean;
  id: string;
  /** Default: `video.deleted`. */
  object?: "video.deleted";
}

export interface DeliveryAttempt {
  /** Epoch seconds */
  at: number;
  /** Reason for a missing response */
  error: string | null;
  /** Start of the response body, at most 1 KiB */
  response: string | null;
  /** HTTP status of the response; null without one */
  status: number | null;
  /** Seconds from connection to response */
  took_s: number;
}

export interface DraftEnhanceRequest {
  /** The draft: the id of its task, or `draft_cache` of its result. Prompt, seed, duration, ratio and sound are the draft's. */
  draft_cache: string;
  /** A draft at full quality. */
  mode: "draft_enhance";
  /** `hd` is 1280x704 at 16:9, `fhd` 1920x1088. Default: `fhd`. */
  resolution?: "hd" | "fhd" | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

/** Unknown fields are ignored. */
export interface EraseRequest {
  /** Margin around the white of the mask that is also removed, in pixels. Default: `10`. */
  dilate_pixels?: number | null;
  /** The image to remove something from (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). */
  image: string;
  /** Black-and-white image of the same size: white is removed, black stays as it is. Some of it must be white, and not all. */
  mask: string;
  /** File format of the result. Default: `png`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

export interface ErrorResponse {
  /** Code for programs; never changes */
  code: string;
  /** Message for people */
  detail: string;
  /** Suggestion what to send instead */
  hint?: string | null;
  /** Value of `x-request-id`, also in the logs */
  request_id?: string | null;
}

/** `input_image` is taken for `image`, where only that is sent; other unknown fields are ignored. */
export interface FillRequest {
  /** Higher keeps closer to the prompt, at the cost of realism. Default: `60`. */
  guidance?: number | null;
  /** The image to change (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). Transparent parts are repainted when there is no `mask`. */
  image: string;
  /** Black-and-white image of the same size: white is painted anew, black stays as it is. Needed unless the image has transparent parts. */
  mask?: string | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the masked area. */
  prompt?: string | null;
  /** Rewrites the prompt for a more creative result. Default: `false`. */
  prompt_upsampling?: boolean | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Denoising steps. Fewer are faster and coarser. Default: `50`. */
  steps?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

export interface FinetuneDetails {
  base: string;
  created: number;
  finetune_id: string;
  layers: number;
  name: string;
  rank: number;
  size: number;
  status: string;
}

export interface FinetuneDetailsResponse {
  finetune_details: FinetuneDetails;
}

export interface FinetuneList {
  finetunes: Array<FinetuneDetails>;
}

/** Adds removal of the background to `gen-2-pro`. `prompt_upsampling` is the opposite of `disable_pup`. */
export interface Gen2MaxRequest {
  /** Takes the prompt as it is, not rewritten. Default: `false`. */
  disable_pup?: boolean | null;
  /** Height in pixels; needs `width`. `width` x `height` is at most 16822272. Default: `0`. */
  height?: number | 0 | null;
  /** The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). It sets the default size. */
  input_image?: string | null;
  /** The second image to take from. */
  input_image_2?: string | null;
  /** The third image to take from. */
  input_image_3?: string | null;
  /** The fourth image to take from. */
  input_image_4?: string | null;
  /** The fifth image to take from. */
  input_image_5?: string | null;
  /** The sixth image to take from. */
  input_image_6?: string | null;
  /** The seventh image to take from. */
  input_image_7?: string | null;
  /** The eighth image to take from. */
  input_image_8?: string | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the image, or the change to make. */
  prompt: string;
  /** Moderation tolerance, 0 (strictest) to 5; 6 if an operator approved it. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Removes the background: a PNG with transparency, whatever `output_format` says. Default: `false`. */
  transparent_bg?: boolean | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
  /** Width in pixels; needs `height`. 0: the first image's own, else 1024. Default: `0`. */
  width?: number | 0 | null;
}

/** Text to image when no image is sent, else an edit of the first. Unknown fields are ignored. */
export interface Gen2ProRequest {
  /** Height in pixels; needs `width`. `width` x `height` is at most 16822272. Default: `0`. */
  height?: number | 0 | null;
  /** The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). It sets the default size. */
  input_image?: string | null;
  /** The second image to take from. */
  input_image_2?: string | null;
  /** The third image to take from. */
  input_image_3?: string | null;
  /** The fourth image to take from. */
  input_image_4?: string | null;
  /** The fifth image to take from. */
  input_image_5?: string | null;
  /** The sixth image to take from. */
  input_image_6?: string | null;
  /** The seventh image to take from. */
  input_image_7?: string | null;
  /** The eighth image to take from. */
  input_image_8?: string | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the image, or the change to make. */
  prompt: string;
  /** Moderation tolerance, 0 (strictest) to 5; 6 if an operator approved it. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
  /** Width in pixels; needs `height`. 0: the first image's own, else 1024. Default: `0`. */
  width?: number | 0 | null;
}

export interface GenerationReport {
  /** Default: `1`. */
  number_of_generations?: number;
}

export interface GenerationReportReceipt {
  message: string;
}

/** Text to image when `images` is left out, else an edit of its first item. Unknown fields are refused. */
export interface ImageKleinRequest {
  /** Ratio of width to height. `auto`: for edits that of the first reference, else chosen from the prompt, which itself stays as it is. Ignored when `width` and `height` are set. Default: `auto`. */
  aspect_ratio?: "auto" | "21:9" | "2:1" | "16:9" | "3:2" | "7:5" | "4:3" | "5:4" | "1:1" | "4:5" | "3:4" | "5:7" | "2:3" | "9:16" | "1:2" | "9:21" | null;
  /** Exact height in pixels; needs `width`. `width` x `height` is at most 16822272. */
  height?: number | null;
  /** 1 to 10 reference images (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels each). The first is the one to edit and sets the default output size. */
  images?: Array<string> | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the image, or the change to make. It can end with a JSON array that places elements: boxes are `[top, left, bottom, right]`, 0 to 1000. */
  prompt: string;
  /** Size tier; every ratio has about the same area at one tier. Left out: `1k` for text to image; for edits the first reference's own size, or its nearest tier when `aspect_ratio` is set. Ignored when `width` and `height` are set. */
  resolution?: "768sq" | "1k" | "1.5k" | "2k" | "4k" | null;
  /** Moderation tolerance, 0 (strictest) to 7. The approved levels depend on your organization. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted. */
  seed?: number | null;
  /** Denoising steps. Fewer are faster and coarser. Default: `16`. */
  steps?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
  /** Exact width in pixels; needs `height`. Overrides `resolution` and `aspect_ratio`. */
  width?: number | null;
}

export interface ImageToVideoRequest {
  /** Ratio of width to height. `auto`: the nearest to that of the first keyframe. Default: `auto`. */
  aspect_ratio?: "auto" | "21:9" | "16:9" | "4:3" | "1:1" | "3:4" | "9:16" | "9:21" | null;
  /** A quick pass with half the width and height. `result.draft_cache` of its task is what `draft_enhance` makes the full video of. Default: `false`. */
  draft?: boolean | null;
  /** Whole seconds. `auto`: up to the last keyframe that has a time, at least 5. Default: `auto`. */
  duration?: number | "auto" | null;
  /** Generates sound. An extended video keeps its own sound either way. Default: `true`. */
  generate_audio?: boolean | null;
  /** 1 to 10 images that the video shows (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels each). One is the first frame, two are the first and the last, more are spread evenly. Or pairs `[seconds, image]` in the order of time. */
  keyframes: string | Array<string> | Array<[number, string]>;
  /** Images to video. */
  mode: "i2v";
  /** Content of the video and its sound: speech, sounds, music. */
  prompt: string;
  /** `hd` is 1280x704 at 16:9, `fhd` 1920x1088; every ratio has about the same area. Default: `hd`. */
  resolution?: "hd" | "fhd" | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the video: the same request with the same seed gives the same video. Random if omitted. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

export interface ImagesResponse {
  /** Epoch seconds */
  created: number;
  data: Array<OpenAIImage>;
  output_format: string;
}

/** Text to image when no image is sent, else an edit of the first. Unknown fields are ignored. */
export interface KontextRequest {
  /** Ratio of width to height, any between `21:9` and `9:21`, at about one megapixel. Left out: the first image's, else `1:1`. */
  aspect_ratio?: string | null;
  /** The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). It sets the default ratio. */
  input_image?: string | null;
  /** The second image to take from. Experimental. */
  input_image_2?: string | null;
  /** The third image to take from. Experimental. */
  input_image_3?: string | null;
  /** The fourth image to take from. Experimental. */
  input_image_4?: string | null;
  /** File format of the result. Default: `png`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Change to make, or content of a new image. */
  prompt: string;
  /** Rewrites the prompt for a more creative result. Default: `false`. */
  prompt_upsampling?: boolean | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

export interface ModelList {
  data: Array<OpenAIModel>;
  /** Default: `list`. */
  object?: "list";
}

/** States, ordered by the time until a result. */
export type ModelState = "ready" | "starting" | "scaled to zero" | "no replica";

export interface NotReady {
  code: string;
  detail: string;
  /** A sentence for each missing requirement */
  missing: Array<string>;
}

export interface OpenAIError {
  code: string;
  message: string;
  param: string | null;
  type: string;
}

export interface OpenAIErrorResponse {
  error: OpenAIError;
}

export interface OpenAIImage {
  b64_json?: string | null;
  /** Id of the task */
  id: string;
  /** The prompt, if it was rewritten */
  revised_prompt?: string | null;
  /** Signed link, valid for minutes */
  url?: string | null;
}

export interface OpenAIModel {
  /** Always 0: unknown. Default: `0`. */
  created?: number;
  /** True for the bundled demonstration model, which only knows coloured shapes. Default: `false`. */
  demo?: boolean;
  id: string;
  /** Default: `model`. */
  object?: "model";
  /** Default: `gen-serve`. */
  owned_by?: string;
  /** Estimated wait of a new task in seconds; null before the first finished task */
  predicted_wait_s?: number | null;
  /** Day of the endpoint's shutdown, if announced */
  shutdown_date?: string | null;
  /** State of the model's replicas; null if unknown */
  state?: ModelState | null;
}

/** Unknown fields are refused. */
export interface OutpaintingRequest {
  /** Cuts off what sticks out of the result, which is refused otherwise. Default: `false`. */
  auto_crop?: boolean | null;
  /** Height of the result in pixels. `width` x `height` is at most 4194304. */
  height: number;
  /** The image to extend (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). */
  input_image: string;
  /** `high` for the best quality, `fast` for the shortest time. Default: `high`. */
  mode?: "high" | "fast" | null;
  /** File format of the result. Default: `png`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Position of the image's left edge in the result, in pixels. Centred if omitted. It can be negative with `auto_crop`. */
  reference_offset_x?: number | null;
  /** Position of the image's top edge in the result, in pixels. Centred if omitted. It can be negative with `auto_crop`. */
  reference_offset_y?: number | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
  /** Width of the result in pixels. */
  width: number;
}

export interface Price {
  /** Credits */
  cost: number;
  input_mp: number;
  output_mp: number;
  /** Parts of the request that will have no effect */
  warnings?: Array<string>;
}

export interface PriceRequest {
  /** Body of the request */
  body: Record<string, unknown>;
  /** Path of the request: /v1/gen-… */
  path: string;
}

/** Width and height have defaults of their own, so either may be sent alone. Unknown fields are ignored. */
export interface ProRequest {
  /** Higher keeps closer to the prompt, at the cost of realism. Default: `2.5`. */
  guidance?: number | null;
  /** Height in pixels, a multiple of 32. Default: `768`. */
  height?: number | null;
  /** An image to work from as from a prompt (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). */
  image_prompt?: string | null;
  /** Guidance is applied at every n-th step. Default: `2`. */
  interval?: number | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the image. */
  prompt?: string | null;
  /** Rewrites the prompt for a more creative result. Default: `false`. */
  prompt_upsampling?: boolean | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Denoising steps. Fewer are faster and coarser. Default: `40`. */
  steps?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
  /** Width in pixels, a multiple of 32. Default: `1024`. */
  width?: number | null;
}

export interface ProtectedResource {
  authorization_servers: Array<string>;
  /** Default: `["header"]`. */
  bearer_methods_supported?: Array<string>;
  resource: string;
  /** Default: `gen-serve`. */
  resource_name?: string;
  /** Default: `["developer", "viewer"]`. */
  scopes_supported?: Array<string>;
}

export interface ResultLink {
  /** Epoch seconds; not later than the deletion of the result */
  expires: number;
  /** Link to a page with the result and its prompt, until `expires` or its revocation */
  page: string;
  /** Link to the file */
  url: string;
}

/** The contract's vocabulary. `NOT_FOUND` is an answer only, no task ever has it. */
export type Status = "Pending" | "Reasoning" | "Generating" | "Ready" | "Error" | "Request Moderated" | "Content Moderated" | "Task not found";

/** An accepted task. */
export interface Submission {
  /** Cost in credits */
  cost: number | null;
  id: string;
  /** Size of the inputs without masks, in 2^20 pixels, 2 decimals */
  input_mp: number | null;
  /** Size of the result in 2^20 pixels, 2 decimals; the tier's size if the prompt decides the ratio */
  output_mp: number | null;
  polling_url: string;
  /** `Pending`; only with a webhook */
  status?: string | null;
  /** Parts of the request that will be ignored; also in `details` beside the result. Absent if none */
  warnings?: Array<string> | null;
  /** The webhook of the request; absent without one */
  webhook_url?: string | null;
}

/** State of a task's webhook. */
export interface TaskDelivery {
  /** The latest 50, oldest first */
  attempts: Array<DeliveryAttempt>;
  /** Scheme, host and port of `webhook_url`, whose other parts may be secrets */
  destination: string;
  /** Id of the task, sent as `webhook-id` with every attempt */
  id: string;
  /** Time of the next attempt, epoch seconds */
  next: number | null;
  /** `not due` before the task ends; `failed` after the last attempt */
  state: "not due" | "waiting" | "sending" | "delivered" | "failed";
}

export interface TaskDetails {
  /** Number of attempts started */
  attempt: number;
  /** Settled cost in credits, once known */
  cost: number | null;
  /** Epoch seconds */
  created: number;
  endpoint: string;
  /** Time of deletion; null before the end */
  expires: number | null;
  finished: number | null;
  id: string;
  /** Number of images and videos sent */
  inputs: number;
  /** Known parameters of the generation: `width`, `height`, `steps`, `seed` … */
  parameters: Record<string, string | number | boolean>;
  /** 0.0 to 1.0; null if unknown */
  progress: number | null;
  /** Prompt as sent. Null if it can't be read */
  prompt: string | null;
  /** True while its page has links that are not revoked */
  shared: boolean;
  started: number | null;
  status: Status;
  /** Link to a small image of the result or of the latest preview; null if there is none */
  thumbnail: string | null;
}

export interface TaskPage {
  /** Cursor of the next page; null on the last one. With filters, a page before the last may have fewer tasks than `limit` */
  next: string | null;
  tasks: Array<TaskSummary>;
}

/** Status of a task and, once it is `Ready`, its result. */
export interface TaskResult {
  /** Settled cost in credits, once known */
  cost?: number | null;
  /** An unfinished task has, if known: `eta` (seconds until the result), `eta_range` (its 80 % range), `queue_position` (1 is next) while it waits, and a `message` while its model starts. A finished task has `Moderation Reasons`, `error`, or beside a result `warnings` about ignored parts of the request */
  details?: Record<string, unknown> | null;
  id: string;
  preview?: Record<string, unknown> | null;
  /** 0.0 to 1.0, never decreases; null if unknown */
  progress?: number | null;
  result?: Record<string, unknown> | null;
  status: Status;
}

export interface TaskSummary {
  /** Number of attempts started */
  attempt: number;
  /** Settled cost in credits, once known */
  cost: number | null;
  /** Epoch seconds */
  created: number;
  endpoint: string;
  /** Time of deletion; null before the end */
  expires: number | null;
  finished: number | null;
  id: string;
  /** 0.0 to 1.0; null if unknown */
  progress: number | null;
  /** Prompt as sent, truncated. Null if it can't be read */
  prompt: string | null;
  started: number | null;
  status: Status;
  /** Link to a small image of the result or of the latest preview; null if there is none */
  thumbnail: string | null;
}

export interface TextToVideoRequest {
  /** Ratio of width to height. `auto`: chosen from the prompt, else 16:9. Default: `auto`. */
  aspect_ratio?: "auto" | "21:9" | "16:9" | "4:3" | "1:1" | "3:4" | "9:16" | "9:21" | null;
  /** A quick pass with half the width and height. `result.draft_cache` of its task is what `draft_enhance` makes the full video of. Default: `false`. */
  draft?: boolean | null;
  /** Whole seconds. `auto`: 5. Default: `auto`. */
  duration?: number | "auto" | null;
  /** Generates sound. An extended video keeps its own sound either way. Default: `true`. */
  generate_audio?: boolean | null;
  /** Text to video. */
  mode: "t2v";
  /** Content of the video and its sound: speech, sounds, music. */
  prompt: string;
  /** `hd` is 1280x704 at 16:9, `fhd` 1920x1088; every ratio has about the same area. Default: `hd`. */
  resolution?: "hd" | "fhd" | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the video: the same request with the same seed gives the same video. Random if omitted. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

/** Images over 2 megapixels are scaled to about one. Unknown fields are ignored. */
export interface TryOnV1Request {
  /** The garment (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). */
  garment: string;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** The person to dress (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). It sets the size of the result. */
  person: string;
  /** Styling of the garment. Optional. */
  prompt?: string | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

/** Images of up to 4 megapixels are used as they are, larger ones refused. Unknown fields are ignored. */
export interface TryOnV2Request {
  /** The garment (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 4 megapixels; turned upright). */
  garment: string;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** The person to dress (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 4 megapixels; turned upright). It sets the size of the result. */
  person: string;
  /** Styling of the garment. Optional. */
  prompt?: string | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

export interface TunedControlCannyRequest {
  /** Stronger edges than this are kept; those between are kept where they touch one. Default: `200`. */
  canny_high_threshold?: number | null;
  /** Weaker edges than this are dropped. Default: `50`. */
  canny_low_threshold?: number | null;
  /** The image to take the edges from (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). */
  control_image: string;
  /** The tuned model, by the id that its upload answered. */
  finetune_id: string;
  /** Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`. */
  finetune_strength?: number | null;
  /** Higher keeps closer to the prompt, at the cost of realism. Default: `30`. */
  guidance?: number | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the image. */
  prompt: string;
  /** Rewrites the prompt for a more creative result. Default: `false`. */
  prompt_upsampling?: boolean | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Denoising steps. Fewer are faster and coarser. Default: `50`. */
  steps?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

export interface TunedFillRequest {
  /** The tuned model, by the id that its upload answered. */
  finetune_id: string;
  /** Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`. */
  finetune_strength?: number | null;
  /** Higher keeps closer to the prompt, at the cost of realism. Default: `60`. */
  guidance?: number | null;
  /** The image to change (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). Transparent parts are repainted when there is no `mask`. */
  image: string;
  /** Black-and-white image of the same size: white is painted anew, black stays as it is. Needed unless the image has transparent parts. */
  mask?: string | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the masked area. */
  prompt?: string | null;
  /** Rewrites the prompt for a more creative result. Default: `false`. */
  prompt_upsampling?: boolean | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Denoising steps. Fewer are faster and coarser. Default: `50`. */
  steps?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

export interface TunedGen2MaxRequest {
  /** Takes the prompt as it is, not rewritten. Default: `false`. */
  disable_pup?: boolean | null;
  /** The tuned model, by the id that its upload answered. */
  finetune_id: string;
  /** Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`. */
  finetune_strength?: number | null;
  /** Height in pixels; needs `width`. `width` x `height` is at most 16822272. Default: `0`. */
  height?: number | 0 | null;
  /** The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). It sets the default size. */
  input_image?: string | null;
  /** The second image to take from. */
  input_image_2?: string | null;
  /** The third image to take from. */
  input_image_3?: string | null;
  /** The fourth image to take from. */
  input_image_4?: string | null;
  /** The fifth image to take from. */
  input_image_5?: string | null;
  /** The sixth image to take from. */
  input_image_6?: string | null;
  /** The seventh image to take from. */
  input_image_7?: string | null;
  /** The eighth image to take from. */
  input_image_8?: string | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the image, or the change to make. */
  prompt: string;
  /** Moderation tolerance, 0 (strictest) to 5; 6 if an operator approved it. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Removes the background: a PNG with transparency, whatever `output_format` says. Default: `false`. */
  transparent_bg?: boolean | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
  /** Width in pixels; needs `height`. 0: the first image's own, else 1024. Default: `0`. */
  width?: number | 0 | null;
}

export interface TunedGen2ProRequest {
  /** The tuned model, by the id that its upload answered. */
  finetune_id: string;
  /** Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`. */
  finetune_strength?: number | null;
  /** Height in pixels; needs `width`. `width` x `height` is at most 16822272. Default: `0`. */
  height?: number | 0 | null;
  /** The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). It sets the default size. */
  input_image?: string | null;
  /** The second image to take from. */
  input_image_2?: string | null;
  /** The third image to take from. */
  input_image_3?: string | null;
  /** The fourth image to take from. */
  input_image_4?: string | null;
  /** The fifth image to take from. */
  input_image_5?: string | null;
  /** The sixth image to take from. */
  input_image_6?: string | null;
  /** The seventh image to take from. */
  input_image_7?: string | null;
  /** The eighth image to take from. */
  input_image_8?: string | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the image, or the change to make. */
  prompt: string;
  /** Moderation tolerance, 0 (strictest) to 5; 6 if an operator approved it. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
  /** Width in pixels; needs `height`. 0: the first image's own, else 1024. Default: `0`. */
  width?: number | 0 | null;
}

export interface TunedImageKleinRequest {
  /** Ratio of width to height. `auto`: for edits that of the first reference, else chosen from the prompt, which itself stays as it is. Ignored when `width` and `height` are set. Default: `auto`. */
  aspect_ratio?: "auto" | "21:9" | "2:1" | "16:9" | "3:2" | "7:5" | "4:3" | "5:4" | "1:1" | "4:5" | "3:4" | "5:7" | "2:3" | "9:16" | "1:2" | "9:21" | null;
  /** The tuned model, by the id that its upload answered. */
  finetune_id: string;
  /** Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`. */
  finetune_strength?: number | null;
  /** Exact height in pixels; needs `width`. `width` x `height` is at most 16822272. */
  height?: number | null;
  /** 1 to 10 reference images (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels each). The first is the one to edit and sets the default output size. */
  images?: Array<string> | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the image, or the change to make. It can end with a JSON array that places elements: boxes are `[top, left, bottom, right]`, 0 to 1000. */
  prompt: string;
  /** Size tier; every ratio has about the same area at one tier. Left out: `1k` for text to image; for edits the first reference's own size, or its nearest tier when `aspect_ratio` is set. Ignored when `width` and `height` are set. */
  resolution?: "768sq" | "1k" | "1.5k" | "2k" | "4k" | null;
  /** Moderation tolerance, 0 (strictest) to 7. The approved levels depend on your organization. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted. */
  seed?: number | null;
  /** Denoising steps. Fewer are faster and coarser. Default: `16`. */
  steps?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
  /** Exact width in pixels; needs `height`. Overrides `resolution` and `aspect_ratio`. */
  width?: number | null;
}

export interface TunedKontextRequest {
  /** Ratio of width to height, any between `21:9` and `9:21`, at about one megapixel. Left out: the first image's, else `1:1`. */
  aspect_ratio?: string | null;
  /** The tuned model, by the id that its upload answered. */
  finetune_id: string;
  /** Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`. */
  finetune_strength?: number | null;
  /** The image to edit (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). It sets the default ratio. */
  input_image?: string | null;
  /** The second image to take from. Experimental. */
  input_image_2?: string | null;
  /** The third image to take from. Experimental. */
  input_image_3?: string | null;
  /** The fourth image to take from. Experimental. */
  input_image_4?: string | null;
  /** File format of the result. Default: `png`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Change to make, or content of a new image. */
  prompt: string;
  /** Rewrites the prompt for a more creative result. Default: `false`. */
  prompt_upsampling?: boolean | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

export interface TunedProRequest {
  /** The tuned model, by the id that its upload answered. */
  finetune_id: string;
  /** Strength of the tuned model: 0 has no effect, 1 is as trained. Default: `1.1`. */
  finetune_strength?: number | null;
  /** Higher keeps closer to the prompt, at the cost of realism. Default: `2.5`. */
  guidance?: number | null;
  /** Height in pixels, a multiple of 32. Default: `768`. */
  height?: number | null;
  /** An image to work from as from a prompt (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright). */
  image_prompt?: string | null;
  /** Guidance is applied at every n-th step. Default: `2`. */
  interval?: number | null;
  /** File format of the result. Default: `jpeg`. */
  output_format?: "jpeg" | "png" | "webp" | null;
  /** Content of the image. */
  prompt?: string | null;
  /** Rewrites the prompt for a more creative result. Default: `false`. */
  prompt_upsampling?: boolean | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the image: the same request with the same seed gives the same image. Random if omitted or negative. JavaScript rounds seeds above 2^53 when it reads the answer. */
  seed?: number | null;
  /** Denoising steps. Fewer are faster and coarser. Default: `40`. */
  steps?: number | null;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
  /** Width in pixels, a multiple of 32. Default: `1024`. */
  width?: number | null;
}

export interface Upload {
  /** Time at which the file is deleted, epoch seconds */
  expires: number;
  /** Headers of the PUT */
  headers: Record<string, string>;
  max_bytes: number;
  /** Reference to send in place of an image or video, with a key of the same project */
  upload: string;
  /** Takes the file by one PUT, within 15 minutes, and needs no key */
  url: string;
}

export interface UsageReport {
  usage: Array<DailyUsage>;
}

export interface ValidationErrorEntry {
  /** Violated bounds */
  ctx?: Record<string, unknown> | null;
  /** Location: `body`, `query`, `path` or `header`, then names of fields */
  loc: Array<string>;
  /** Message for people */
  msg: string;
  /** Code for programs */
  type: string;
}

export interface ValidationErrorResponse {
  /** `invalid_request` */
  code: string;
  detail: Array<ValidationErrorEntry>;
  /** Value of `x-request-id`, also in the logs */
  request_id?: string | null;
}

export interface Video {
  completed_at?: number | null;
  /** Epoch seconds, like the other times */
  created_at: number;
  error?: VideoFailure | null;
  /** Time of deletion */
  expires_at?: number | null;
  id: string;
  model: string;
  /** Default: `video`. */
  object?: "video";
  /** Percent */
  progress: number;
  /** Null if it can no longer be read */
  prompt?: string | null;
  seconds: string;
  /** `auto` while the prompt has yet to decide the ratio */
  size: string;
  status: "queued" | "in_progress" | "completed" | "failed";
}

export interface VideoFailure {
  code: string;
  message: string;
}

export interface VideoList {
  data: Array<Video>;
  first_id: string | null;
  has_more: boolean;
  last_id: string | null;
  /** Default: `list`. */
  object?: "list";
}

export interface VideoToVideoRequest {
  /** Ratio of width to height. `auto`: the nearest to that of the video. Default: `auto`. */
  aspect_ratio?: "auto" | "21:9" | "16:9" | "4:3" | "1:1" | "3:4" | "9:16" | "9:21" | null;
  /** A quick pass with half the width and height. `result.draft_cache` of its task is what `draft_enhance` makes the full video of. Default: `false`. */
  draft?: boolean | null;
  /** Whole seconds of new video. `auto`: 5. Default: `auto`. */
  duration?: number | "auto" | null;
  /** Generates sound. An extended video keeps its own sound either way. Default: `true`. */
  generate_audio?: boolean | null;
  /** A video goes on. */
  mode: "v2v";
  /** Content of the video and its sound: speech, sounds, music. */
  prompt: string;
  /** `hd` is 1280x704 at 16:9, `fhd` 1920x1088; every ratio has about the same area. Default: `hd`. */
  resolution?: "hd" | "fhd" | null;
  /** Moderation tolerance, 0 (strictest) to 6. 2 if omitted. */
  safety_tolerance?: number | null;
  /** Seed of the video: the same request with the same seed gives the same video. Random if omitted. */
  seed?: number | null;
  /** The video to go on from: mp4 (H.264 or another common codec), as base64, `data:` URI or http(s) URL; at most 50 MB, from 1/24 to 20 seconds long, with sides from 64 to 4096 pixels. The result begins with it, and has at most 20 seconds. */
  start_video: string;
  /** Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one else. */
  user?: string | null;
  /** Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the text itself. Without a secret, webhooks are not signed. */
  webhook_secret?: string | null;
  /** URL that receives the result as a POST once the task has one. It must be reachable publicly. */
  webhook_url?: string | null;
}

/** Request bodies of each endpoint. */
export interface Bodies {
  "gen-2-max": Gen2MaxRequest;
  "gen-2-max-finetuned": TunedGen2MaxRequest;
  "gen-2-pro": Gen2ProRequest;
  "gen-2-pro-finetuned": TunedGen2ProRequest;
  "gen-2-pro-preview": Gen2ProRequest;
  "gen-2-pro-preview-finetuned": TunedGen2ProRequest;
  "gen-3-image-klein": ImageKleinRequest;
  "gen-3-image-klein-finetuned": TunedImageKleinRequest;
  "gen-3-video": TextToVideoRequest | ImageToVideoRequest | VideoToVideoRequest | DraftEnhanceRequest;
  "gen-kontext-pro": KontextRequest;
  "gen-kontext-pro-finetuned": TunedKontextRequest;
  "gen-pro": ProRequest;
  "gen-pro-1.0": ProRequest;
  "gen-pro-1.0-canny": CannyRequest;
  "gen-pro-1.0-canny-finetuned": TunedControlCannyRequest;
  "gen-pro-1.0-fill": FillRequest;
  "gen-pro-1.0-fill-finetuned": TunedFillRequest;
  "gen-pro-1.1": ProRequest;
  "gen-pro-finetuned": TunedProRequest;
  "gen-tools/deblur-v1": DeblurRequest;
  "gen-tools/erase-v1": EraseRequest;
  "gen-tools/outpainting-v1": OutpaintingRequest;
  "gen-tools/vto-v1": TryOnV1Request;
  "gen-tools/vto-v2": TryOnV2Request;
}

export type Endpoint = keyof Bodies;

// Makes images as an application does that uses the Vercel AI SDK. Takes from standard input
// {baseURL, apiKey, requests: {name: {model, call, abort}}}, where `call` is what `generateImage` takes, and writes to
// standard output what came of each, and as what the SDK told the service about itself.
import { subscribe } from 'node:diagnostics_channel';
import { text } from 'node:stream/consumers';
import { createBlackForestLabs } from '@ai-sdk/black-forest-labs';
import { generateImage } from 'ai';

const { baseURL, apiKey, requests } = JSON.parse(await text(process.stdin));
const service = createBlackForestLabs({ baseURL, apiKey });
const userAgents = new Set();
globalThis.AI_SDK_LOG_WARNINGS = false; // they would go to standard output
let polled = () => {};

subscribe('undici:request:create', ({ request }) => {
  const headers = [request.headers].flat();
  const named = headers.findIndex((name) => String(name).toLowerCase() === 'user-agent');
  if (named >= 0) userAgents.add(String(headers[named + 1]));
  if (request.path.startsWith('/v1/get_result')) polled();
});

async function made({ model, call, abort }) {
  const controller = new AbortController();
  polled = abort ? () => setImmediate(() => controller.abort()) : () => {};
  try {
    const { image, warnings, providerMetadata } = await generateImage({
      model: service.image(model),
      maxRetries: 0,
      abortSignal: controller.signal,
      ...call,
    });
    const { mediaType, base64 } = image;
    return { mediaType, base64, warnings, metadata: providerMetadata.blackForestLabs.images[0] };
  } catch (error) {
    return { error: error.name, message: error.message, status: error.statusCode ?? null };
  }
}

const results = {};
for (const [name, request] of Object.entries(requests)) results[name] = await made(request);
process.stdout.write(JSON.stringify({ results, userAgents: [...userAgents] }));

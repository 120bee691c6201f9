// Generates and edits images by the OpenAI-style routes without a package, in Node 20 or later.
import { writeFile } from 'node:fs/promises';

const base = process.env.GEN_BASE_URL ?? 'http://localhost:8000';
const authorization = `Bearer ${process.env.GEN_KEY}`;

// The answer is { data: [{ b64_json }] }, or { error: { message, code } }.
async function images(path, request) {
  const response = await fetch(`${base}/v1/images/${path}`, { method: 'POST', ...request });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${response.status} ${answer.error.code}: ${answer.error.message}`);
  return answer.data.map(({ b64_json }) => Buffer.from(b64_json, 'base64'));
}

const prompt = 'a large white star on a black background';
const [star] = await images('generations', {
  headers: { authorization, 'content-type': 'application/json' },
  body: JSON.stringify({ model: 'gen-3-image-klein', prompt, size: '512x512', seed: 7 }),
});

// Edits are forms; fetch sets their content type.
const form = new FormData();
form.set('model', 'gen-kontext-pro');
form.set('prompt', 'make the star red');
form.set('image', new Blob([star], { type: 'image/png' }), 'star.png');
const [red] = await images('edits', { headers: { authorization }, body: form });

await Promise.all([writeFile('star.png', star), writeFile('red.png', red)]);

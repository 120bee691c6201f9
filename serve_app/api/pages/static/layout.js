// Structured prompts: words, and behind them a JSON array that says where each thing goes.
// A row here is {id, desc, from, source, target}: an element of the image `from`, or a new one where that is null.

export const FIRST_IMAGE = "ref_image_0";

// What is no valid array stays with the words: the service says what is wrong with it.
export function split(prompt) {
  if (prompt.trimEnd().endsWith("]")) {
    for (const { index } of prompt.matchAll(/\[(?=\s*\{)/g)) {
      const rows = read(prompt.slice(index));
      if (rows) return { words: prompt.slice(0, index).trimEnd(), rows };
    }
  }
  return { words: prompt, rows: [] };
}

// A prompt as people read it.
export const spoken = (prompt) => split(prompt).words;

// There are two forms of rows, and all are of one: edits have images to take things from.
export function join(words, rows, edits) {
  if (!rows.length) return words;
  const form = edits || rows.some((row) => row.from) ? edited : generated;
  return `${words ?? ""} ${JSON.stringify(rows.map(form))}`.trimStart();
}

const generated = (row) => ({ id: row.id, bbox: row.target, desc: row.desc });
const edited = (row) => ({ id: row.id, from: row.from, src_bbox: row.source, tgt_bbox: row.target, desc: row.desc });

function read(text) {
  let items;
  try {
    items = JSON.parse(text);
  } catch {
    return null;
  }
  const rows = items.map((item) => row(item));
  return rows.every(Boolean) ? rows : null;
}

function row(item) {
  const { id, desc, bbox, from = null, src_bbox: source = null, tgt_bbox: target = bbox ?? null } = item ?? {};
  const boxes = [source, target].filter((box) => box !== null);
  const valid = [id, desc, from ?? ""].every((each) => typeof each === "string") && boxes.length && boxes.every(isBox);
  return valid ? { id, desc, from: from?.replace(/^<(.*)>$/, "$1") ?? null, source, target } : null;
}

const isBox = (box) => Array.isArray(box) && box.length === 4 && box.every(Number.isInteger) && box[0] < box[2] && box[1] < box[3];

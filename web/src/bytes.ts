/** Columns of numbers out of base64 text. */

export function bytesOf(text: string): Uint8Array {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

export function floatsOf(bytes: Uint8Array): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const out = new Float32Array(bytes.byteLength >> 2);
  for (let i = 0; i < out.length; i++) out[i] = view.getFloat32(4 * i, true);
  return out;
}

export function shortsOf(bytes: Uint8Array): Uint16Array {
  const out = new Uint16Array(bytes.byteLength >> 1);
  for (let i = 0; i < out.length; i++) out[i] = (bytes[2 * i] ?? 0) | ((bytes[2 * i + 1] ?? 0) << 8);
  return out;
}

/** `count` whole numbers of two bytes each, or of four where a set is too large for two. */
export function wholesOf(bytes: Uint8Array, count: number): Uint16Array | Uint32Array {
  if (bytes.byteLength !== 4 * count) return shortsOf(bytes);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Uint32Array.from({ length: count }, (_, i) => view.getUint32(4 * i, true));
}

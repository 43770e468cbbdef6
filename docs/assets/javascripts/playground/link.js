/* An edit as the end of an address: "#edit=" with the kernel's name and its text, compressed. */
const START = "#edit=";
export const LONGEST = 64_000; // characters of a kernel: a longer one in a link is not ours

const through = (bytes, stream) => new Blob([bytes]).stream().pipeThrough(stream);

export async function toHash(kernel, text) {
  const packed = through(new TextEncoder().encode(text), new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
  const letters = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return `${START}${encodeURIComponent(kernel)}~${letters.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

/* {kernel, text}. Throws an Error with a sentence for what is no such address, or damaged, or too long. */
export async function fromHash(hash) {
  const [name, letters] = hash.slice(START.length).split("~");
  const damaged = () => new Error("The link is damaged: it holds no kernel.");
  if (!hash.startsWith(START) || !letters || letters.length > 2 * LONGEST) throw damaged();
  const parts = [];
  let kernel = "";
  let length = 0;
  try {
    kernel = decodeURIComponent(name);
    const bytes = Uint8Array.from(atob(letters.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.codePointAt(0));
    const reader = through(bytes, new DecompressionStream("deflate-raw")).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      length += part.value.length;
      if (length > LONGEST) break; // a small link may unpack to gigabytes
      parts.push(part.value);
    }
    if (length > LONGEST) await reader.cancel();
  } catch {
    throw damaged();
  }
  if (length > LONGEST) throw new Error(`The link holds more than ${LONGEST / 1000} kB of text: it is not opened.`);
  const text = await new Blob(parts).text();
  return { kernel, text };
}

export async function loadJson(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`could not be loaded (${response.status})`);
  return response.json().catch(() => {
    throw new Error("is not valid JSON");
  });
}

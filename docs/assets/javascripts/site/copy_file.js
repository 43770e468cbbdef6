/* The "Copy" link beside a kernel puts the whole file on the clipboard. Without a script, or when the
   browser refuses, it stays what it is: a link to that file. A button puts there the text that it has. */
addEventListener("click", async (event) => {
  const link = event.target.closest(".am-copy");
  if (!link) return;
  event.preventDefault();
  try {
    await navigator.clipboard.writeText(link.dataset.text ?? await textOf(link.href));
  } catch {
    if (link.href) location.assign(link.href);
    return;
  }
  const label = link.textContent;
  if (label === "Copied") return;
  link.textContent = "Copied";
  setTimeout(() => { link.textContent = label; }, 2000);
});

async function textOf(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(response.status);
  return response.text();
}

/* The "Copy" link beside a kernel puts the whole file on the clipboard. Without a script, or when the
   browser refuses, it stays what it is: a link to that file. */
addEventListener("click", async (event) => {
  const link = event.target.closest("a.am-copy");
  if (!link) return;
  event.preventDefault();
  try {
    const response = await fetch(link.href);
    if (!response.ok) throw new Error(response.status);
    await navigator.clipboard.writeText(await response.text());
  } catch {
    location.assign(link.href);
    return;
  }
  const label = link.textContent;
  if (label === "Copied") return;
  link.textContent = "Copied";
  setTimeout(() => { link.textContent = label; }, 2000);
});

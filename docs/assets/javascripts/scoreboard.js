/* From the first kernel to the last: an .am-ladder box holds the code of each step, written by `make figures`.
   With this script one step shows at a time, chosen with a slider; without it all stand one below the other.
   The step is in the address, so that a view can be shared. */
(() => {
  const { make } = window.amFigures;
  const PARAMETER = "kernel";
  const REMEMBER_MS = 250; // after the last step, before the address follows

  function start(box) {
    const sections = [...box.querySelectorAll(":scope > section[data-kernel]")];
    if (sections.length < 2 || box.dataset.ready) return;
    box.dataset.ready = "true";
    const names = sections.map((section) => section.dataset.kernel);
    const bar = make("div", { className: "am-ladder-bar" });
    const back = make("button", { type: "button", textContent: "◀" });
    const on = make("button", { type: "button", textContent: "▶" });
    const range = make("input", { type: "range", min: 0, max: sections.length - 1, step: 1 });
    const count = make("span");
    back.setAttribute("aria-label", "The kernel before");
    on.setAttribute("aria-label", "The next kernel");
    range.setAttribute("aria-label", "Kernel");
    count.setAttribute("aria-hidden", "true");
    bar.append(back, range, on, count);
    box.prepend(bar);
    let timer;

    function show(step, remember) {
      sections.forEach((section, i) => { section.hidden = i !== step; });
      range.value = step;
      range.setAttribute("aria-valuetext", names.slice(Math.max(0, step - 1), step + 1).join(" → "));
      back.disabled = step === 0;
      on.disabled = step === sections.length - 1;
      count.textContent = `${step + 1} of ${sections.length}`;
      if (!remember) return;
      clearTimeout(timer);
      timer = setTimeout(() => {
  const { make } = window.amFigures;
        if (!box.isConnected) return; // another page by now
        const address = new URL(location.href);
        address.searchParams.set(PARAMETER, names[step]);
        history.replaceState(history.state, "", address);
      }, REMEMBER_MS);
    }

    range.addEventListener("input", () => show(Number(range.value), true));
    back.addEventListener("click", () => show(Math.max(0, Number(range.value) - 1), true));
    on.addEventListener("click", () => show(Math.min(sections.length - 1, Number(range.value) + 1), true));
    const asked = names.indexOf(new URLSearchParams(location.search).get(PARAMETER));
    show(Math.max(0, asked), false);
  }

  document$.subscribe(() => document.querySelectorAll(".am-ladder").forEach(start));
})();

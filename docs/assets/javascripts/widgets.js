/* The script of a widget comes with the first page that has one: packing.py puts their list in the place of
   AM_WIDGETS, as [selector, file]. Each asks for the document itself, and gets the one that is there. */
(() => {
  const folder = document.currentScript.src.replace(/[^/]*$/, "");
  const waiting = new Map(AM_WIDGETS);

  document$.subscribe(() => {
    for (const [selector, file] of waiting) {
      if (!document.querySelector(selector)) continue;
      waiting.delete(selector);
      document.head.append(Object.assign(document.createElement("script"), { src: folder + file }));
    }
  });
})();

/* Material puts each code block's copy button into a <nav> without a name. A page has many of them, and a reader who
   goes from landmark to landmark would meet each: here they are none. */
new MutationObserver((records) => {
  for (const { addedNodes } of records) {
    for (const node of addedNodes) if (node.className === "md-code__nav") node.setAttribute("role", "none");
  }
}).observe(document.documentElement, { childList: true, subtree: true });

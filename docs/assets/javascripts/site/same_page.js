/* Until Material has fetched a page, links within this one are the browser's. Material would fetch this page again for
   the first of them and put it in place of itself: folds closed, editors gone, figures drawn anew. */
const start = location.pathname;
const { next } = location$;
let fetches = false;

addEventListener("click", ({ target }) => {
  const link = target.closest?.("a[href*='#']:not([target])");
  if (fetches || !link || link.origin + link.pathname !== location.origin + start) return;
  const { search } = link;
  if (search && search !== location.search) return; // another view
  Object.assign(link, { target: "_self", search: location.search }); // for this click: Material passes by such a link
  setTimeout(() => {
    link.removeAttribute("target");
    link.search = search;
  });
}, true);

location$.next = (url) => { // each popstate, of which a heading's is the browser's, and each click on a link
  if (!fetches && url.pathname === start && window.event?.type === "popstate") return;
  fetches = true;
  next.call(location$, url);
};

/* Pages come and go without the document being loaded again: Material emits a document on the first load and
   on each instant navigation, to late subscribers too. */
export const onPage = (act) => document$.subscribe(act);

const NEAR = "400px 0px";

/* An observer that opens each element once, when it comes near the screen. */
export function nearby(open) {
  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      open(target);
    }
  }, { rootMargin: NEAR });
  return observer;
}

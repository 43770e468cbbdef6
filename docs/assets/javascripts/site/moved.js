/* A section that moved to another page: its old address is that of a link at the page's end, which is followed.
   It takes the place of the old address in the history. */
import { onPage } from "./pages.js";

function follow() {
  const asked = document.getElementById(location.hash.slice(1));
  if (asked?.matches(".am-moved a")) location.replace(asked.href);
}

addEventListener("hashchange", follow);
onPage(follow);

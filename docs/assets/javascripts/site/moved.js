/* A section that moved to another page: its old address is that of a link at the page's end, which is followed.
   A page that became a part of another is followed whole. The new address takes the old one's place in the history. */
import { onPage } from "./pages.js";

function follow() {
  const asked = document.getElementById(location.hash.slice(1));
  const whole = document.querySelector(".am-replaced");
  if (whole) location.replace(whole.href + location.search + location.hash);
  else if (asked?.matches(".am-moved a")) location.replace(asked.href);
}

addEventListener("hashchange", follow);
onPage(follow);

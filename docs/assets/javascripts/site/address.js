/* What a reader has chosen is in the address, so that a view can be shared. It replaces the history's entry,
   so that "back" leaves the page; the entry's state is Material's (how far the page was scrolled). */
const REMEMBER_MS = 250; // after the last of many steps, before the address follows

export const asked = (name) => new URLSearchParams(location.search).get(name);

/* Write {name: value} into the address; a parameter without a value is taken out. */
export function remember(values) {
  const address = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value === "") address.searchParams.delete(name);
    else address.searchParams.set(name, value);
  }
  replace(address);
}

export function replace(address) {
  try {
    history.replaceState(history.state, "", address);
  } catch (error) {
    console.warn(`The address stays behind: ${error.message}`); // Safari allows 100 in half a minute
  }
}

/* For a widget whose steps follow each other quickly: remembers the last ones, while its box is there. */
export function rememberLater(box) {
  let timer;
  return (values) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (box.isConnected) remember(values); // otherwise this is another page by now
    }, REMEMBER_MS);
  };
}

/* What is kept in this browser and sent nowhere. Where there is no storage nothing is. */
export function kept(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch (error) {
    console.warn(`Not remembered: ${error.message}`);
  }
}

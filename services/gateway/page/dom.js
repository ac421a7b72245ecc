// Elements from code. Text is only ever set as text.

export const byId = (id) => document.getElementById(id);

/** An element with attributes, listeners (`onclick`) and children: nodes or texts. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Sets a text where it changed, so that nothing is laid out again for nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Tells those who listen rather than look. */
export function announce(text) {
  byId("told").textContent = text;
}

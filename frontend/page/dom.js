// Elements, with text written only where it changed: redrawing the page each second would lose focus and selection.

const SVG = 'http://www.w3.org/2000/svg';

/** Creates an element, `name.class.class`, with optional attributes and `on...` listeners, then children (nodes or text). */
export function h(name, ...rest) {
  return made((tag) => document.createElement(tag), name, rest);
}

/** Creates an SVG element. */
export function s(name, ...rest) {
  return made((tag) => document.createElementNS(SVG, tag), name, rest);
}

function made(create, name, rest) {
  const [tag, ...classes] = name.split('.');
  const element = create(tag);
  const attributes = rest[0]?.constructor === Object ? rest.shift() : {};
  if (classes.length) element.setAttribute('class', classes.join(' '));
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else set(element, name, value);
  }
  element.append(...rest.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets an attribute, or removes it if the value is `null` or `false`. */
export function set(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else {
    const text = value === true ? '' : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

/** Sets the text. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, visible) {
  element.toggleAttribute('hidden', !visible);
}

/** Names and figures in a `<dl>`: `[name, text, tone]`. */
export function facts(root, rows) {
  keyed(root, rows, ([name]) => name, ([name]) => h('div', h('dt', name), h('dd')), (row, [, text, tone]) => {
    say(row.lastChild, text);
    set(row, 'data-tone', tone);
  });
}

/** A button that toggles between the start of a long list and all of it. */
export function more(redraw, shown) {
  const button = h('button.quiet', { onclick: () => { button.whole = !button.whole; redraw(); } });
  button.cut = (list) => {
    show(button, list.length > shown);
    say(button, button.whole ? 'Show fewer' : `Show all ${list.length}`);
    return button.whole ? list : list.slice(0, shown);
  };
  return button;
}

/** Updates a parent's children from a list by key: unchanged ones are kept, and with them the focus. */
export function keyed(parent, items, key, create, update) {
  const known = new Map();
  for (const child of [...parent.children]) {
    if (known.has(child.dataset.key)) child.remove();
    else known.set(child.dataset.key, child);
  }
  let at = parent.firstElementChild;
  items.forEach((item, index) => {
    const name = String(key(item, index));
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    update?.(child, item);
  });
  for (const child of known.values()) child.remove();
}

// The visible elements of a page as [place, tag, attributes, children], and the elements by place.
() => {
  const KEPT = ["href", "type", "name", "id", "for", "placeholder", "aria-label", "title", "alt",
                "role", "contenteditable"];
  const UNSEEN = ["head", "script", "style", "template", "noscript"];
  // What is nested deeper goes on beside what it is in: the reader calls itself for each level.
  const DEEPEST = 300;
  const elements = [];
  const shown = (element) => !UNSEEN.includes(element.localName)
    && (["option", "optgroup"].includes(element.localName)
        || getComputedStyle(element).display === "contents"
        || element.checkVisibility({visibilityProperty: true}));
  const attributesOf = (element) => {
    const found = {};
    for (const name of KEPT) {
      if (element.hasAttribute(name)) found[name] = element.getAttribute(name);
    }
    const tag = element.localName;
    if (tag === "input" || tag === "textarea") found.value = element.value;
    if (element.checked) found.checked = "";
    if (element.matches(":disabled") || element.closest("[aria-disabled=true]")) found.disabled = "";
    if (element.readOnly) found.readonly = "";
    if (tag === "option" && element.selected) found.selected = "";
    if (tag === "summary" && element.parentElement?.open) found.open = "";
    if (tag === "details" && element.open) found.open = "";
    return found;
  };
  const walk = (element, depth, into) => {
    const place = elements.push(element) - 1;
    const tag = element.localName;
    const children = [];
    into.push([place, tag, attributesOf(element), children]);
    const inner = depth < DEEPEST ? children : into;
    const root = element.shadowRoot || element;
    let nodes = tag === "textarea" ? [] : [...root.childNodes];
    if (tag === "details" && !element.open) {
      nodes = nodes.filter((node) => node.localName === "summary").slice(0, 1);
    }
    for (const node of nodes) {
      if (node.nodeType === Node.TEXT_NODE) children.push(node.data);
      else if (node.nodeType === Node.ELEMENT_NODE && shown(node)) walk(node, depth + 1, inner);
    }
  };
  const trees = [];
  if (document.body) walk(document.body, 0, trees);
  return {tree: trees[0] || [0, "body", {}, []],
          title: document.title, url: location.href, elements};
}

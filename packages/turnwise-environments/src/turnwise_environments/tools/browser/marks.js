// Draws the numbers of elements beside them, for an image; called again without numbers, removes
// them. `places` are places of elements in `page`, in the order of their numbers.
(page, places) => {
  for (const mark of document.querySelectorAll("turnwise-mark")) mark.remove();
  places.forEach((place, index) => {
    const box = page.elements[place].getBoundingClientRect();
    if (box.width === 0 || box.bottom < 0 || box.top > innerHeight) return;
    const mark = document.createElement("turnwise-mark");
    mark.textContent = index + 1;
    mark.style.cssText = `position:fixed;left:${Math.max(box.left - 4, 0)}px;`
      + `top:${Math.max(box.top - 8, 0)}px;z-index:2147483647;pointer-events:none;`
      + "font:bold 11px/13px sans-serif;padding:0 3px;color:#fff;background:#b00020";
    document.documentElement.appendChild(mark);
  });
}

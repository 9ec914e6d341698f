// Draws the diagrams of a page, in the colors of the reader's theme. Mermaid is large: only pages with diagrams load it.
(() => {
  const dark = () => ['coal', 'navy', 'ayu'].some((name) => document.documentElement.classList.contains(name));
  const diagrams = [...document.querySelectorAll('pre.mermaid')];
  if (diagrams.length === 0) return;
  diagrams.forEach((diagram) => (diagram.dataset.source = diagram.textContent));
  const draw = () => {
    diagrams.forEach((diagram) => {
      diagram.removeAttribute('data-processed');
      diagram.textContent = diagram.dataset.source;
    });
    mermaid.initialize({ startOnLoad: false, theme: dark() ? 'dark' : 'neutral' });
    mermaid.run({ nodes: diagrams });
  };
  let was = dark();
  const watch = () => {
    draw();
    new MutationObserver(() => {
      if (dark() === was) return;
      was = dark();
      draw();
    }).observe(document.documentElement, { attributes: true, attributeFilter: ['class'] });
  };
  const library = document.createElement('script');
  library.src = `${path_to_root}mermaid.min.js`;
  library.onload = watch;
  document.head.append(library);
})();

// Draws the diagrams of a page, in the colours of the reader's theme.
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
  draw();
  new MutationObserver(() => {
    if (dark() === was) return;
    was = dark();
    draw();
  }).observe(document.documentElement, { attributes: true, attributeFilter: ['class'] });
})();

'use strict';
const faults = [];
addEventListener('error', event => faults.push(event.message));
for (const level of ['log', 'warn', 'error']) console[level] = text => faults.push(`${text}`);

// Of each load the plots that one can see, with lines or bars.
const plots = () => [...document.querySelectorAll('[data-load]')].map(block => [block.dataset.load,
  [...block.querySelectorAll('svg')].filter(svg =>
    svg.getBoundingClientRect().height > 40 && svg.querySelector('.bar, .curve')).length]);

// Texts that are cut off, or too small.
const unreadable = () => [...document.querySelectorAll('svg text')].filter(text => text.getClientRects().length)
  .filter(text => {
    const [own, all] = [text, text.ownerSVGElement].map(element => element.getBoundingClientRect());
    return own.left < all.left - 1 || own.right > all.right + 1 || own.bottom > all.bottom + 1 || own.height < 10;
  }).map(text => text.textContent);

// The lowest contrast with the background of texts, and of what is drawn.
const contrast = () => {
  const luminance = colour => colour.match(/[\d.]+/g).map(Number).slice(0, 3).map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const back = luminance(getComputedStyle(document.body).backgroundColor);
  const ratio = colour => {
    const [low, high] = [luminance(colour), back].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const least = (selector, property) => Math.min(...[...document.querySelectorAll(selector)]
    .map(element => ratio(getComputedStyle(element)[property])));
  return [
    Math.min(least('p, h1, h2, h3, td, th, label, li', 'color'), least('svg text', 'fill')),
    Math.min(least('svg .curve', 'stroke'), least('svg .bar', 'fill'), least('.legend i', 'backgroundColor')),
  ];
};

addEventListener('load', async () => {
  const slider = document.querySelector('input[type=range]');
  const seen = {
    window: [innerWidth, matchMedia('(prefers-color-scheme: dark)').matches],
    plots: plots(),
    slider: [slider.value, slider.getAttribute('aria-valuetext'), slider.getBoundingClientRect().width > 100,
      document.querySelector('output').textContent, slider.labels[0].textContent],
    curves: document.querySelectorAll('.policy svg .curve').length,
    unreadable: unreadable(),
    contrast: contrast(),
    fits: document.documentElement.scrollWidth <= innerWidth,
    requests: performance.getEntriesByType('resource').map(entry => entry.name),
  };
  slider.value = 2;
  slider.dispatchEvent(new Event('input'));
  await new Promise(resolve => setTimeout(resolve, 100));
  seen.moved = [location.hash, plots()];
  seen.faults = faults;
  const pre = document.createElement('pre');
  pre.id = 'seen';
  pre.textContent = JSON.stringify(seen);
  document.body.append(pre);
});

'use strict';
const faults = [];
addEventListener('error', event => faults.push(event.message));

const until = async isDone => {
  for (let i = 0; i < 40 && !isDone(); i++) await new Promise(resolve => setTimeout(resolve, 100));
};

addEventListener('load', async () => {
  const all = selector => [...document.querySelectorAll(selector)];
  await until(() => all('#mdbook-searchresults li').length && all('#mdbook-sidebar a[href]').length);
  const seen = {
    window: [innerWidth, matchMedia('(prefers-color-scheme: dark)').matches],
    theme: document.documentElement.className.match(/light|navy/)?.[0],
    heading: document.querySelector('main h1').textContent,
    chapters: all('#mdbook-sidebar a[href]').map(link => link.getAttribute('href').replace(/^.*\/(?=[^/]*\/[^/]*$)/, '')),
    found: all('#mdbook-searchresults li a').map(link => link.getAttribute('href')),
    fits: document.documentElement.scrollWidth <= innerWidth,
    faults,
  };
  const pre = document.createElement('pre');
  pre.id = 'seen';
  pre.textContent = JSON.stringify(seen);
  document.body.append(pre);
});

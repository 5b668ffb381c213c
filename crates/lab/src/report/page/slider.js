'use strict';
// One load at a time: the one of the fragment `#load=1.5`, which the slider sets.
const slider = document.getElementById('load');
const factor = document.getElementById('factor');
const blocks = [...document.querySelectorAll('[data-load]')];
const loads = blocks.map(block => block.dataset.load);
const show = () => {
  const stated = loads.indexOf(location.hash.replace('#load=', ''));
  const at = stated < 0 ? Number(slider.dataset.first) : stated;
  slider.value = at;
  slider.setAttribute('aria-valuetext', `${loads[at]} times the load`);
  factor.textContent = `× ${loads[at]}`;
  blocks.forEach((block, number) => { block.hidden = number !== at; });
};
slider.addEventListener('input', () => location.replace(`#load=${loads[slider.value]}`));
addEventListener('hashchange', show);
slider.parentElement.hidden = false;
show();

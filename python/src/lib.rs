//! The gym of edgeward-lab for Python. `edgeward_gym/__init__.py` makes Gymnasium environments of it.

use std::collections::BTreeMap;

use edgeward_lab::gym::{Episode, FEATURES, Gym, Settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};

type Figures = BTreeMap<&'static str, f64>;

/// Several environments of equal settings. Buffers hold them one after the other.
#[pyclass]
struct Gyms {
    settings: Settings,
    environments: usize,
    /// Empty before the first [`Gyms::seed`].
    gyms: Vec<Gym>,
    /// Whether an environment has to be reset before its next step.
    ended: Vec<bool>,
}

#[pymethods]
impl Gyms {
    /// The range of all numbers of an observation. The largest is a latency; a duration is at most 45.
    #[classattr]
    const RANGE: (f32, f32) = (-2.0, 500.0);

    /// The settings have the names of `edgeward-lab train --env`, with `_` for `-`.
    #[new]
    #[pyo3(signature = (environments, **settings))]
    fn new(environments: i64, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut fields = Vec::new();
        for (name, value) in settings.into_iter().flatten() {
            let value = match value.extract::<bool>() {
                Ok(truth) => truth.to_string(),
                Err(_) => value.str()?.to_string(),
            };
            fields.push(format!("{}={value}", name.to_string().replace('_', "-")));
        }
        let count = usize::try_from(environments).ok().filter(|count| *count > 0);
        Ok(Self {
            settings: Settings::parse(&fields.join(",")).map_err(PyValueError::new_err)?,
            environments: count.ok_or_else(|| refused(format!("num_envs: {environments} is not above 0")))?,
            gyms: Vec::new(),
            ended: Vec::new(),
        })
    }

    /// The shape of an observation: actions, numbers of each action.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.settings.clusters + 2, FEATURES)
    }

    #[getter]
    fn is_seeded(&self) -> bool {
        !self.gyms.is_empty()
    }

    /// Creates an environment for each seed, at the beginning of its first episode.
    fn seed(&mut self, seeds: Vec<u64>) -> PyResult<()> {
        self.counted("seed", seeds.len())?;
        self.gyms = seeds.into_iter().map(|seed| Gym::new(&self.settings, seed)).collect();
        self.ended = vec![true; self.environments];
        self.reset();
        Ok(())
    }

    /// Begins an episode in each environment whose episode has ended.
    fn reset(&mut self) {
        let gyms = self.gyms.iter_mut().zip(&mut self.ended);
        gyms.filter(|(_, ended)| **ended).for_each(|(gym, ended)| {
            gym.reset();
            *ended = false;
        });
    }

    /// Begins an episode in each environment.
    fn reset_all(&mut self) {
        self.ended.fill(true);
        self.reset();
    }

    /// The observations, in `float32`.
    fn observe<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        let (actions, features) = self.shape();
        let mut numbers = vec![0.0; self.gyms.len() * actions * features];
        let parts = numbers.chunks_exact_mut(actions * features);
        self.gyms.iter().zip(parts).for_each(|(gym, part)| gym.observe(part));
        let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_ne_bytes).collect();
        PyByteArray::new(py, &bytes)
    }

    /// The masks, a byte for each action: 1 if it is allowed.
    fn masks<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        let actions = self.shape().0;
        let mut masks = vec![true; self.gyms.len() * actions];
        let parts = masks.chunks_exact_mut(actions);
        self.gyms.iter().zip(parts).for_each(|(gym, part)| gym.mask(part));
        let bytes: Vec<u8> = masks.into_iter().map(u8::from).collect();
        PyByteArray::new(py, &bytes)
    }

    /// Takes an action in each environment. Returns the rewards, and figures of each episode that ended. If a number is
    /// no action, no environment changes.
    fn step(&mut self, actions: Vec<i64>) -> PyResult<(Vec<f64>, Vec<Option<Figures>>)> {
        self.counted("action", actions.len())?;
        if self.ended.is_empty() || self.ended.contains(&true) {
            return Err(refused("step: no episode has begun, call reset first".to_owned()));
        }
        let count = self.shape().0;
        let checked = actions.into_iter().map(|action| {
            let index = usize::try_from(action).ok().filter(|index| *index < count);
            index.ok_or_else(|| refused(format!("action: {action} is not a number from 0 to {}", count - 1)))
        });
        let checked: Vec<usize> = checked.collect::<PyResult<_>>()?;
        let steps: Vec<_> = self
            .gyms
            .iter_mut()
            .zip(checked)
            .map(|(gym, action)| gym.step(action))
            .collect();
        self.ended = steps.iter().map(|step| step.episode.is_some()).collect();
        Ok(steps
            .into_iter()
            .map(|step| (step.reward, step.episode.map(figures)))
            .unzip())
    }
}

impl Gyms {
    fn counted(&self, name: &str, count: usize) -> PyResult<()> {
        match self.environments {
            expected if expected == count => Ok(()),
            expected => Err(refused(format!("{name}: {count} values for {expected} environments"))),
        }
    }
}

/// Figures of an episode. Without an accepted request, latency and cost are not numbers.
fn figures(episode: Episode) -> Figures {
    BTreeMap::from([
        ("rejected_percent", episode.rejected),
        ("latency_ms", episode.latency.unwrap_or(f64::NAN)),
        ("cost", episode.cost.unwrap_or(f64::NAN)),
    ])
}

fn refused(message: String) -> PyErr {
    PyValueError::new_err(message)
}

#[pymodule(name = "_gym")]
mod module {
    #[pymodule_export]
    use super::Gyms;
}

//! Optimisers of parameters.

use anyhow::{Context as _, Result};
use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Method {
    /// Adam, with decays of 0.9 and 0.999.
    Adam { rate: f64, epsilon: f64 },
    /// RMSprop, with a decay of 0.99.
    RmsProp { rate: f64, epsilon: f64 },
}

#[derive(Debug)]
pub(super) struct Moments {
    pub(super) first: Vec<f32>,
    pub(super) second: Vec<f32>,
}

/// An optimiser of a list of parameters. It uses plain loops on one thread.
#[derive(Debug)]
pub(super) struct Optimiser {
    method: Method,
    parameters: Vec<Var>,
    pub(super) moments: Vec<Moments>,
    pub(super) steps: u32,
}

impl Optimiser {
    pub(super) fn new(method: Method, parameters: Vec<Var>) -> Self {
        let moments = parameters.iter().map(|parameter| Moments {
            first: vec![0.0; parameter.elem_count()],
            second: vec![0.0; parameter.elem_count()],
        });
        Self {
            method,
            moments: moments.collect(),
            parameters,
            steps: 0,
        }
    }

    /// Takes a step. If the joint length of all gradients exceeds `longest`, they are scaled down to it.
    pub(super) fn step(&mut self, gradients: &[&GradStore], longest: Option<f64>) -> Result<()> {
        let of = |parameter: &Var| -> Result<Vec<f32>> {
            let found = gradients.iter().find_map(|store| store.get(parameter));
            let found = found.context("a parameter has no gradient")?;
            Ok(found.flatten_all()?.to_vec1()?)
        };
        let mut found = self.parameters.iter().map(of).collect::<Result<Vec<_>>>()?;
        if let Some(longest) = longest {
            let squares = found.iter().flatten().map(|x| f64::from(*x) * f64::from(*x));
            // As in PyTorch.
            let factor = (longest / (squares.sum::<f64>().sqrt() + 1e-6)).min(1.0) as f32;
            found.iter_mut().flatten().for_each(|gradient| *gradient *= factor);
        }
        self.steps += 1;
        for ((parameter, moments), gradient) in self.parameters.iter().zip(&mut self.moments).zip(&found) {
            let mut numbers = parameter.flatten_all()?.to_vec1::<f32>()?;
            self.method.update(&mut numbers, moments, gradient, self.steps);
            parameter.set(&Tensor::from_vec(numbers, parameter.shape(), &Device::Cpu)?)?;
        }
        Ok(())
    }
}

impl Method {
    fn update(self, numbers: &mut [f32], moments: &mut Moments, gradient: &[f32], step: u32) {
        let second = moments.second.iter_mut();
        match self {
            Self::Adam { rate, epsilon } => {
                let step = f64::from(step);
                let rate = (rate / (1.0 - 0.9_f64.powf(step))) as f32;
                let root = (1.0 - 0.999_f64.powf(step)).sqrt() as f32;
                let moments = moments.first.iter_mut().zip(second);
                for ((x, gradient), (first, second)) in numbers.iter_mut().zip(gradient).zip(moments) {
                    *first = 0.9 * *first + 0.1 * gradient;
                    *second = 0.999 * *second + 0.001 * gradient * gradient;
                    *x -= rate * *first / (second.sqrt() / root + epsilon as f32);
                }
            }
            Self::RmsProp { rate, epsilon } => {
                for ((x, gradient), second) in numbers.iter_mut().zip(gradient).zip(second) {
                    *second = 0.99 * *second + 0.01 * gradient * gradient;
                    *x -= rate as f32 * gradient / (second.sqrt() + epsilon as f32);
                }
            }
        }
    }
}

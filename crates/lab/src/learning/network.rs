//! The networks: their layers, the initial values of their parameters, and their results.

use anyhow::{Result, bail, ensure};
use candle_core::{Device, Tensor, Var};

use edgeward_decision::model::scorer;

use crate::gym::FEATURES;
use crate::random::Stream;

const WIDTH: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Gives a number to each row, and so to each action, for any number of rows. If rows are permuted, their numbers
    /// are permuted with them.
    SetActor,
    SetCritic,
    FlatActor {
        actions: usize,
    },
    FlatCritic {
        actions: usize,
    },
    /// The network of the learned scorer: a number for each row, of any number of rows. Its weights are inputs × outputs.
    Scorer,
    /// The mean of the numbers of a [`Shape::Scorer`].
    ScorerCritic,
}

#[derive(Debug, Clone, Copy)]
enum Start {
    /// Uniform between -1/√inputs and 1/√inputs, as in linear layers of PyTorch.
    Uniform(usize),
    /// Orthogonal rows or columns of this length, as in stable-baselines3.
    Orthogonal(f64),
    Zero,
}

/// A parameter without values: its name, its rows and columns, and its initialisation. A vector has one row.
type Plan = (&'static str, [usize; 2], Start);

#[derive(Debug)]
pub struct Network {
    shape: Shape,
    names: Vec<&'static str>,
    parameters: Vec<Var>,
}

impl Network {
    /// Creates a network and draws its parameters from a stream.
    ///
    /// # Errors
    /// An error of the tensor library.
    pub fn new(shape: Shape, stream: &mut Stream) -> Result<Self> {
        let plans = shape.plans();
        let parameters = plans.iter().map(|(_, [rows, columns], start)| {
            let numbers = start.numbers(*rows, *columns, stream);
            Ok(Var::from_tensor(&Tensor::from_vec(
                numbers,
                (*rows, *columns),
                &Device::Cpu,
            )?)?)
        });
        Ok(Self {
            shape,
            parameters: parameters.collect::<Result<_>>()?,
            names: plans.iter().map(|(name, ..)| *name).collect(),
        })
    }

    /// Returns a copy of the network.
    ///
    /// # Errors
    /// An error of the tensor library.
    pub fn copied(&self) -> Result<Self> {
        let parameters = self.parameters.iter().map(|own| Ok(Var::from_tensor(&own.copy()?)?));
        Ok(Self {
            shape: self.shape,
            names: self.names.clone(),
            parameters: parameters.collect::<Result<_>>()?,
        })
    }

    /// Copies the parameters of another network of the same shape.
    ///
    /// # Errors
    /// The other network has a different shape.
    pub fn copy_from(&self, other: &Self) -> Result<()> {
        ensure!(
            self.shape == other.shape,
            "the networks are {:?} and {:?}",
            self.shape,
            other.shape
        );
        for (own, other) in self.parameters.iter().zip(&other.parameters) {
            own.set(other)?;
        }
        Ok(())
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, &Var)> {
        self.names.iter().copied().zip(&self.parameters)
    }

    pub fn size(&self) -> usize {
        self.parameters.iter().map(|parameter| parameter.elem_count()).sum()
    }

    /// Computes the results for observations (batch × rows × features): batch × rows for an actor, batch for a
    /// critic. The results can be differentiated.
    ///
    /// # Errors
    /// The observations have another shape.
    pub fn forward(&self, observations: &Tensor) -> Result<Tensor> {
        let weights: Vec<Tensor> = self.parameters.iter().map(|own| own.as_tensor().clone()).collect();
        self.shape.forward(&weights, observations)
    }

    /// Computes the results of [`Network::forward`] without the possibility to differentiate them, which is cheaper.
    ///
    /// # Errors
    /// The observations have another shape.
    pub fn infer(&self, observations: &Tensor) -> Result<Tensor> {
        let weights: Vec<Tensor> = self.parameters.iter().map(Var::as_detached_tensor).collect();
        self.shape.forward(&weights, observations)
    }
}

impl Shape {
    fn plans(self) -> Vec<Plan> {
        const SET: [&str; 6] = [
            "first.own",
            "first.common",
            "second.own",
            "second.common",
            "third.own",
            "third.common",
        ];
        let equivariant = |widths: [usize; 4]| {
            let shapes = (0..6).map(move |at| [widths[at / 2 + 1], widths[at / 2]]);
            let plans = SET.into_iter().zip(shapes);
            plans.map(|(name, shape)| (name, shape, Start::Uniform(shape[1])))
        };
        let flat = |actions: usize, outputs: usize, gain: f64| {
            let hidden = Start::Orthogonal(std::f64::consts::SQRT_2);
            vec![
                ("first.weight", [WIDTH, actions * FEATURES], hidden),
                ("first.bias", [1, WIDTH], Start::Zero),
                ("second.weight", [WIDTH, WIDTH], hidden),
                ("second.bias", [1, WIDTH], Start::Zero),
                ("third.weight", [outputs, WIDTH], Start::Orthogonal(gain)),
                ("third.bias", [1, outputs], Start::Zero),
            ]
        };
        match self {
            Self::SetActor => equivariant([FEATURES, WIDTH, WIDTH, 1]).collect(),
            Self::SetCritic => {
                let start = Start::Uniform(WIDTH);
                let pooled = [
                    ("fourth.weight", [WIDTH, WIDTH], start),
                    ("fourth.bias", [1, WIDTH], start),
                    ("fifth.weight", [1, WIDTH], start),
                    ("fifth.bias", [1, 1], start),
                ];
                equivariant([FEATURES, WIDTH, WIDTH, WIDTH]).chain(pooled).collect()
            }
            Self::Scorer | Self::ScorerCritic => {
                let width = scorer::WIDTH;
                let start = Start::Uniform(width);
                vec![
                    ("first.weight", [width, width], start),
                    ("first.bias", [1, width], start),
                    ("second.weight", [width, width], start),
                    ("mean.weight", [width, width], start),
                    ("second.bias", [1, width], start),
                    ("last.weight", [width, 1], start),
                    ("last.bias", [1, 1], Start::Zero),
                ]
            }
            Self::FlatActor { actions } => flat(actions, actions, 0.01),
            Self::FlatCritic { actions } => flat(actions, 1, 1.0),
        }
    }

    fn forward(self, weights: &[Tensor], observations: &Tensor) -> Result<Tensor> {
        let (batch, rows, features) = observations.dims3()?;
        let expected = match self {
            Self::Scorer | Self::ScorerCritic => scorer::WIDTH,
            _ => FEATURES,
        };
        ensure!(
            features == expected,
            "an observation has {features} numbers a row, and not {expected}"
        );
        if let Self::FlatActor { actions } | Self::FlatCritic { actions } = self {
            ensure!(
                rows == actions,
                "an observation of {rows} rows cannot be told to a network for {actions}"
            );
        }
        Ok(match (self, weights) {
            (Self::SetActor, [a, b, c, d, e, f]) => {
                let x = equivariant(observations, a, b)?.relu()?;
                let x = equivariant(&x, c, d)?.elu(1.0)?;
                equivariant(&x, e, f)?.reshape((batch, rows))?
            }
            (Self::SetCritic, [a, b, c, d, e, f, g, h, i, j]) => {
                let x = equivariant(observations, a, b)?.elu(1.0)?;
                let x = equivariant(&x, c, d)?.elu(1.0)?;
                let sum = equivariant(&x, e, f)?.elu(1.0)?.sum(1)?;
                let x = sum.broadcast_div(&Tensor::new(rows as f32, &Device::Cpu)?)?;
                let x = linear(&x, g, h)?.elu(1.0)?;
                linear(&x, i, j)?.reshape(batch)?
            }
            (Self::FlatActor { .. } | Self::FlatCritic { .. }, [a, b, c, d, e, f]) => {
                let x = observations.reshape((batch, rows * features))?;
                let x = linear(&x, a, b)?.tanh()?;
                let x = linear(&x, c, d)?.tanh()?;
                let x = linear(&x, e, f)?;
                match self {
                    Self::FlatActor { .. } => x,
                    _ => x.reshape(batch)?,
                }
            }
            (Self::Scorer | Self::ScorerCritic, [a, b, c, d, e, f, g]) => {
                let x = observations.reshape((batch * rows, features))?;
                let x = x.matmul(a)?.broadcast_add(b)?.relu()?;
                let mean = x
                    .reshape((batch, rows, features))?
                    .mean(1)?
                    .matmul(d)?
                    .broadcast_add(e)?;
                let x = x.matmul(c)?.reshape((batch, rows, features))?;
                let x = x.broadcast_add(&mean.unsqueeze(1)?)?.relu()?;
                let x = x.reshape((batch * rows, features))?.matmul(f)?.broadcast_add(g)?;
                let x = x.reshape((batch, rows))?;
                match self {
                    Self::Scorer => x,
                    _ => x.mean(1)?,
                }
            }
            (_, weights) => bail!("a network {self:?} does not have {} parameters", weights.len()),
        })
    }
}

/// Returns each row's own part minus a part of the maximum of each column. If rows are permuted, the results are
/// permuted with them. Of equal rows, the first takes the gradient of the maximum, as in PyTorch.
pub(super) fn equivariant(sets: &Tensor, own: &Tensor, common: &Tensor) -> Result<Tensor> {
    let (batch, rows, width) = sets.dims3()?;
    let each = sets.reshape((batch * rows, width))?.matmul(&own.t()?)?;
    let largest = sets.gather(&sets.argmax_keepdim(1)?, 1)?.squeeze(1)?;
    let shared = largest.matmul(&common.t()?)?.unsqueeze(1)?;
    Ok(each.reshape((batch, rows, own.dim(0)?))?.broadcast_sub(&shared)?)
}

fn linear(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    Ok(x.matmul(&weight.t()?)?.broadcast_add(bias)?)
}

impl Start {
    fn numbers(self, rows: usize, columns: usize, stream: &mut Stream) -> Vec<f32> {
        match self {
            Self::Zero => vec![0.0; rows * columns],
            Self::Uniform(inputs) => {
                let most = 1.0 / (inputs as f64).sqrt();
                let numbers = (0..rows * columns).map(|_| (most * (2.0 * stream.unit() - 1.0)) as f32);
                numbers.collect()
            }
            Self::Orthogonal(gain) => orthogonal(rows, columns, gain, stream),
        }
    }
}

/// Returns a matrix, row by row, with orthogonal rows of length `gain`, or orthogonal columns if there are fewer
/// columns. Method: Gram-Schmidt on normal numbers.
fn orthogonal(rows: usize, columns: usize, gain: f64, stream: &mut Stream) -> Vec<f32> {
    let (few, many) = (rows.min(columns), rows.max(columns));
    let mut basis: Vec<Vec<f64>> = Vec::with_capacity(few);
    while basis.len() < few {
        let mut next: Vec<f64> = (0..many).map(|_| stream.normal()).collect();
        for earlier in &basis {
            let along: f64 = earlier.iter().zip(&next).map(|(a, b)| a * b).sum();
            next.iter_mut().zip(earlier).for_each(|(x, a)| *x -= along * a);
        }
        let length = next.iter().map(|x| x * x).sum::<f64>().sqrt();
        // A shorter vector is drawn again; this does not happen in practice.
        if length > 1e-6 {
            next.iter_mut().for_each(|x| *x /= length);
            basis.push(next);
        }
    }
    let at = |row: usize, column: usize| {
        if rows <= columns {
            basis[row][column]
        } else {
            basis[column][row]
        }
    };
    let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    cells.map(|(row, column)| (gain * at(row, column)) as f32).collect()
}

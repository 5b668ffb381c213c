//! Operations of the networks that the tensor library lacks or computes slowly.
//!
//! A batch of sets is a tensor of batch × rows × width. Each operation passes over it once, on one thread. The result
//! is therefore equal on all machines with the same arithmetic.

use candle_core::{CpuStorage, CustomOp1, CustomOp2, Error, Layout, Result, Shape, Tensor};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    None,
    Relu,
    /// e^x - 1 below zero, x above.
    Elu,
}

impl Activation {
    fn of(self, x: f32) -> f32 {
        match self {
            Self::None => x,
            Self::Relu => x.max(0.0),
            Self::Elu if x > 0.0 => x,
            Self::Elu => x.exp() - 1.0,
        }
    }

    /// Returns the derivative at the point where the result is `y`.
    fn slope(self, y: f32) -> f32 {
        match self {
            Self::None => 1.0,
            Self::Relu if y > 0.0 => 1.0,
            Self::Relu => 0.0,
            Self::Elu if y > 0.0 => 1.0,
            Self::Elu => y + 1.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pool {
    Largest,
    Mean,
}

pub(super) fn largest(sets: &Tensor) -> Result<Tensor> {
    sets.apply_op1(Pool::Largest)
}

pub(super) fn mean(sets: &Tensor) -> Result<Tensor> {
    sets.apply_op1(Pool::Mean)
}

/// Subtracts from each row the common part of its set and applies the activation: batch × rows × width.
pub(super) fn less(sets: &Tensor, common: &Tensor, activation: Activation) -> Result<Tensor> {
    sets.apply_op2(common, Less(activation))
}

impl CustomOp1 for Pool {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (batch, rows, width) = layout.shape().dims3()?;
        let sets = numbers(storage, layout)?;
        let mut pooled = vec![0.0; batch * width];
        for (set, pooled) in sets.chunks_exact(rows * width).zip(pooled.chunks_exact_mut(width)) {
            let (first, others) = set.split_at(width);
            pooled.copy_from_slice(first);
            for row in others.chunks_exact(width) {
                for (pooled, x) in pooled.iter_mut().zip(row) {
                    *pooled = match self {
                        Self::Largest => pooled.max(*x),
                        Self::Mean => *pooled + x,
                    };
                }
            }
            if *self == Self::Mean {
                pooled.iter_mut().for_each(|sum| *sum /= rows as f32);
            }
        }
        Ok((CpuStorage::F32(pooled), Shape::from((batch, width))))
    }

    fn bwd(&self, sets: &Tensor, pooled: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let (_, rows, width) = sets.dims3()?;
        let gradients = listed(gradient)?;
        let mut found = vec![0.0; sets.elem_count()];
        let parts = found.chunks_exact_mut(rows * width);
        match self {
            Self::Mean => {
                for (found, gradient) in parts.zip(gradients.chunks_exact(width)) {
                    for row in found.chunks_exact_mut(width) {
                        let pairs = row.iter_mut().zip(gradient);
                        pairs.for_each(|(found, gradient)| *found = gradient / rows as f32);
                    }
                }
            }
            Self::Largest => {
                let (values, largest) = (listed(sets)?, listed(pooled)?);
                let parts = parts.zip(values.chunks_exact(rows * width));
                let common = largest.chunks_exact(width).zip(gradients.chunks_exact(width));
                for ((found, values), (largest, gradient)) in parts.zip(common) {
                    // Goes from the last row to the first, so the first of equal rows wins.
                    let mut at = vec![0; width];
                    for (row, values) in values.chunks_exact(width).enumerate().rev() {
                        let pairs = at.iter_mut().zip(values.iter().zip(largest));
                        pairs.for_each(|(at, (value, largest))| *at = if value == largest { row } else { *at });
                    }
                    for (column, (row, gradient)) in at.iter().zip(gradient).enumerate() {
                        found[row * width + column] = *gradient;
                    }
                }
            }
        }
        Tensor::from_vec(found, sets.shape(), sets.device()).map(Some)
    }
}

struct Less(Activation);

impl CustomOp2 for Less {
    fn name(&self) -> &'static str {
        "less"
    }

    fn cpu_fwd(
        &self,
        sets: &CpuStorage,
        layout: &Layout,
        common: &CpuStorage,
        common_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (batch, rows, width) = layout.shape().dims3()?;
        if common_layout.shape().dims2()? != (batch, width) {
            return Err(Error::Msg(format!(
                "rows of {:?} have nothing of {:?} in common",
                layout.shape(),
                common_layout.shape()
            )));
        }
        let (sets, common) = (numbers(sets, layout)?, numbers(common, common_layout)?);
        let mut results = Vec::with_capacity(sets.len());
        for (set, common) in sets.chunks_exact(rows * width).zip(common.chunks_exact(width)) {
            for row in set.chunks_exact(width) {
                results.extend(row.iter().zip(common).map(|(x, common)| self.0.of(x - common)));
            }
        }
        Ok((CpuStorage::F32(results), layout.shape().clone()))
    }

    fn bwd(
        &self,
        sets: &Tensor,
        common: &Tensor,
        result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (_, rows, width) = sets.dims3()?;
        let (results, mut gradients) = (listed(result)?, listed(gradient)?);
        let pairs = gradients.iter_mut().zip(&results);
        pairs.for_each(|(gradient, y)| *gradient *= self.0.slope(*y));
        let mut shared = vec![0.0; common.elem_count()];
        for (set, shared) in gradients.chunks_exact(rows * width).zip(shared.chunks_exact_mut(width)) {
            for row in set.chunks_exact(width) {
                let pairs = shared.iter_mut().zip(row);
                pairs.for_each(|(shared, gradient)| *shared -= gradient);
            }
        }
        Ok((
            Some(Tensor::from_vec(gradients, sets.shape(), sets.device())?),
            Some(Tensor::from_vec(shared, common.shape(), common.device())?),
        ))
    }
}

fn numbers<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        return Err(Error::Msg("a tensor has gaps".to_owned()));
    };
    Ok(&storage.as_slice::<f32>()?[start..end])
}

fn listed(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

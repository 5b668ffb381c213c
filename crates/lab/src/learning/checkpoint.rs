//! The files of a training: its plan as JSON, and all numbers as safetensors.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use candle_core::{DType, Device, Tensor};

use super::network::Network;
use super::optimiser::Optimiser;
use super::plan::Plan;

pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join("checkpoint.safetensors")
}

fn plan_file(folder: &Path) -> PathBuf {
    folder.join("training.json")
}

pub(super) fn write_plan(folder: &Path, plan: &Plan) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let text = serde_json::to_string_pretty(plan)? + "\n";
    replace(&plan_file(folder), |path| Ok(fs::write(path, text)?))
}

pub(super) fn read_plan(folder: &Path) -> Result<Plan> {
    let path = plan_file(folder);
    let read = || {
        let plan: Plan = serde_json::from_str(&fs::read_to_string(&path)?)?;
        plan.validate()?;
        anyhow::Ok(plan)
    };
    read().with_context(|| path.display().to_string())
}

/// Replaces a file atomically: writes to a file next to it and renames that file. Readers see either the old or the new
/// content.
pub(super) fn replace(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let beside = path.with_extension("partial");
    let written = || -> Result<()> {
        write(&beside)?;
        File::open(&beside)?.sync_all()?;
        Ok(fs::rename(&beside, path)?)
    };
    written().with_context(|| path.display().to_string())
}

#[derive(Default)]
pub(super) struct Stored {
    tensors: HashMap<String, Tensor>,
    path: PathBuf,
}

impl Stored {
    /// Creates a store that holds only the plan.
    pub(super) fn of(plan: &Plan) -> Result<Self> {
        let mut stored = Self::default();
        stored.keep_bytes("plan", &serde_json::to_vec(plan)?)?;
        Ok(stored)
    }

    /// Reads the store in a folder.
    ///
    /// # Errors
    /// The folder has no store, or the store belongs to another plan.
    pub(super) fn read(folder: &Path, plan: &Plan) -> Result<Self> {
        let path = file(folder);
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu);
        let mut stored = Self {
            tensors: tensors.with_context(|| format!("{} is not a checkpoint", path.display()))?,
            path,
        };
        let own = stored.bytes("plan")?;
        ensure!(
            serde_json::from_slice::<Plan>(&own).is_ok_and(|own| own == *plan),
            "{}: plan: is {}, not the plan of training.json",
            stored.path.display(),
            String::from_utf8_lossy(&own)
        );
        Ok(stored)
    }

    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        replace(&file(folder), |path| {
            Ok(candle_core::safetensors::save(&self.tensors, path)?)
        })
    }

    pub(super) fn keep(&mut self, name: &str, network: &Network) {
        let parameters = network.parameters();
        self.tensors
            .extend(parameters.map(|(own, parameter)| (format!("{name}.{own}"), parameter.as_detached_tensor())));
    }

    pub(super) fn restore(&mut self, name: &str, network: &Network) -> Result<()> {
        for (own, parameter) in network.parameters() {
            let kept = self.take(&format!("{name}.{own}"), DType::F32, Some(parameter.dims()))?;
            parameter.set(&kept)?;
        }
        Ok(())
    }

    /// Stores the state of an optimiser whose parameters have these names.
    pub(super) fn keep_moments(&mut self, names: &[String], optimiser: &Optimiser) -> Result<()> {
        for (name, moments) in names.iter().zip(&optimiser.moments) {
            for (moment, numbers) in [("first", &moments.first), ("second", &moments.second)] {
                let numbers = Tensor::from_slice(numbers, numbers.len(), &Device::Cpu)?;
                self.tensors.insert(format!("moments.{moment}.{name}"), numbers);
            }
        }
        self.keep_state("steps", u64::from(optimiser.steps))
    }

    pub(super) fn restore_moments(&mut self, names: &[String], optimiser: &mut Optimiser) -> Result<()> {
        for (name, moments) in names.iter().zip(&mut optimiser.moments) {
            for (moment, numbers) in [("first", &mut moments.first), ("second", &mut moments.second)] {
                let kept = self.take(&format!("moments.{moment}.{name}"), DType::F32, Some(&[numbers.len()]))?;
                *numbers = kept.to_vec1()?;
            }
        }
        let steps = self.state("steps")?;
        optimiser.steps =
            u32::try_from(steps).with_context(|| format!("{}: steps: {steps} is too many", self.path.display()))?;
        Ok(())
    }

    /// Stores 64 bits.
    pub(super) fn keep_state(&mut self, name: &str, state: u64) -> Result<()> {
        let state = Tensor::from_vec(vec![state.cast_signed()], 1, &Device::Cpu)?;
        self.tensors.insert(name.to_owned(), state);
        Ok(())
    }

    /// Takes 64 bits from the store.
    pub(super) fn state(&mut self, name: &str) -> Result<u64> {
        let kept = self.take(name, DType::I64, Some(&[1]))?;
        Ok(kept.squeeze(0)?.to_scalar::<i64>()?.cast_unsigned())
    }

    pub(super) fn keep_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let kept = Tensor::from_slice(bytes, bytes.len(), &Device::Cpu)?;
        self.tensors.insert(name.to_owned(), kept);
        Ok(())
    }

    pub(super) fn bytes(&mut self, name: &str) -> Result<Vec<u8>> {
        Ok(self.take(name, DType::U8, None)?.flatten_all()?.to_vec1()?)
    }

    /// # Errors
    /// The store holds a tensor that was not taken.
    pub(super) fn finish(self) -> Result<()> {
        if let Some(name) = self.tensors.keys().min() {
            bail!("{}: {name}: the plan has no such tensor", self.path.display());
        }
        Ok(())
    }

    fn take(&mut self, name: &str, kind: DType, shape: Option<&[usize]>) -> Result<Tensor> {
        let path = self.path.display();
        let Some(found) = self.tensors.remove(name) else {
            bail!("{path}: {name}: is missing");
        };
        ensure!(
            found.dtype() == kind,
            "{path}: {name}: has numbers of type {:?}, not {kind:?}",
            found.dtype()
        );
        if let Some(shape) = shape {
            ensure!(
                found.dims() == shape,
                "{path}: {name}: has the shape {:?}, but the plan needs {shape:?}",
                found.dims()
            );
        }
        if kind == DType::F32 {
            let numbers = found.flatten_all()?.to_vec1::<f32>()?;
            if let Some(number) = numbers.iter().find(|number| !number.is_finite()) {
                bail!("{path}: {name}: {number} is not finite");
            }
        }
        Ok(found)
    }
}

//! Means over seeds with their confidence intervals, and quantiles.

/// A mean with its 95 % confidence interval. A single value has no interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// Half the width of the 95 % interval.
    pub half_width: Option<f64>,
}

impl Estimate {
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            mean: self.mean * factor,
            half_width: self.half_width.map(|half| half * factor),
        }
    }
}

/// The 97.5 % quantile of Student's t distribution for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

const STUDENT_OF_MANY: f64 = 2.042;

/// Returns the mean of independent values with its interval; `None` without values.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let count = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let half_width = (values.len() > 1).then(|| {
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let student = STUDENT.get(values.len() - 2).copied().unwrap_or(STUDENT_OF_MANY);
        student * (variance / count).sqrt()
    });
    Some(Estimate { mean, half_width })
}

/// Returns the smallest value that at least this share of the sorted values does not exceed; zero without values.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1).min(last)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_interval_uses_student_t() {
        let found = estimate(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(found.mean, 2.0);
        assert!((found.half_width.unwrap() - 4.303 / 3_f64.sqrt()).abs() < 1e-9);
        assert_eq!(estimate(&[5.0]).unwrap().half_width, None);
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn quantile_is_sample_value() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&values, 0.5), 2.0);
        assert_eq!(quantile(&values, 0.95), 4.0);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}

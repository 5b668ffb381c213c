//! Pages of metrics in Prometheus' text format.

/// Sum of a metric over all series of a page with these labels; 0 without any series.
pub fn sum(page: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let wanted: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
    let series = page.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let labels = series.strip_prefix(name)?;
        let ours = labels.is_empty() || labels.starts_with('{');
        (ours && wanted.iter().all(|label| labels.contains(label))).then(|| value.parse::<f64>().ok())?
    });
    series.sum()
}
